"""The numbers of the cluster model, each with its source: measured by bench/scaling.py, the code, or assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from refork.cluster.actors import PoolLimits
from refork.envs.forkable import BadInput
from refork.scripts.bench.cluster_sim import Costs

ASSUMED = {
    "bandwidth": (1.25e9, "bytes/s between nodes: 10 Gbit/s"),
    "latency": (5e-4, "s of one message between nodes"),
    "node_life": (30 * 86400.0, "s, mean time to the failure of a node: a month"),
    "evaluate_every": (10.0, "updates between evaluations, each of as many groups as half an update"),
    "save_every": (10.0, "updates between checkpoints, as in the shipped jobs"),
}


@dataclass(frozen=True)
class Number:
    value: float
    source: str


Numbers = Mapping[str, Number]


@dataclass(frozen=True)
class Run:
    """A run that was measured, its first update left out."""

    place: Mapping[str, int]
    first_step_s: float
    rate: float
    """Episodes per second."""
    collect_s: Sequence[float]
    update_s: Sequence[float]
    episodes: Sequence[int]
    units_s: Sequence[Sequence[float]]

    @property
    def groups(self) -> int:
        """Per update."""
        return len(self.units_s[0])


def runs_of(measured: Mapping[str, Any], work: str) -> list[Run]:
    """The runs of one work. Raises BadInput when there are none."""
    fields = ("collect_s", "update_s", "episodes", "units_s")
    found = [
        Run(run["place"], run["first_step_s"], run["rate"], *(run[name][1:] for name in fields))
        for run in measured["runs"]
        if run["work"] == work
    ]
    if not found:
        raise BadInput(f"no run of {work} was measured; there are: {sorted({run['work'] for run in measured['runs']})}")
    return found


def run_at(runs: Sequence[Run], **place: int) -> Run | None:
    """The run with these settings, of those that are said; None when it was not made."""
    wanted = {"actors": 0, "learners": 1, "staleness": 0, "nodes": 0} | place
    return next((run for run in runs if run.place == wanted), None)


def numbers_of(measured: Mapping[str, Any], work: str, given: Mapping[str, float]) -> dict[str, Number]:
    """`given` by a person goes before all. Raises BadInput for a name that is none of them, and as `runs_of` does."""
    runs = runs_of(measured, work)
    found = {name: Number(value, f"assumed: {what}") for name, (value, what) in ASSUMED.items()}
    found |= _of_calls(measured["calls"], measured["costs"][work])
    found |= _of_runs(runs, found)
    if unknown := sorted(set(given) - set(found)):
        raise BadInput(f"--set {unknown[0]}: no number of that name; there are: {', '.join(sorted(found))}")
    return found | {name: Number(value, "given") for name, value in given.items()}


def _of_calls(calls: Mapping[str, float], costs: Mapping[str, float]) -> dict[str, Number]:
    probed = "measured: an actor that plays nothing"
    one = "measured: one update's experience"
    return {
        "call": Number(calls["call_s"], f"{probed}, s per call"),
        "wait_per_call_out": Number(
            calls["wait_s_per_call_out"], "measured: the collector's look at 10 and at 1,000 calls that are out, s"
        ),
        "transfer": Number(calls["transfer_s_per_byte"], f"{probed}, s per byte"),
        "weights_bytes": Number(costs["weights_bytes"], f"{one}, serialised"),
        "answer_bytes": Number(costs["answer_bytes"], f"{one}, serialised, per group"),
        "store": Number(costs["store_s_per_episode"], f"{one}, s per episode written to disk"),
        "save": Number(costs["save_s"], "measured: one checkpoint to disk, s"),
    }


def _of_runs(runs: Sequence[Run], known: Numbers) -> dict[str, Number]:
    base = run_at(runs, actors=1)
    if base is None:
        raise BadInput("the run with 1 actor was not measured: bench/scaling.py makes it")
    groups = sum(map(len, base.units_s))
    played, episodes = sum(map(sum, base.units_s)), sum(base.episodes)
    update_per_group = sum(base.update_s) / groups
    handled = known["call"].value + known["answer_bytes"].value * known["transfer"].value
    extra = (sum(base.collect_s) - played) / groups - handled - known["store"].value * episodes / groups
    where = "measured: the run with 1 actor"
    return {
        "episodes_per_group": Number(episodes / groups, where),
        "group": Number(played / groups, f"{where}, mean s of a group with its forks; lengths are drawn from all"),
        "actor_extra": Number(max(0.0, extra), f"{where}, s per group on the actor beside playing"),
        "update_per_group": Number(update_per_group, f"{where}, s"),
        "exchange": Number(_exchange(runs, update_per_group), "measured: the run with 2 learners, s per update"),
        "stall": Number(PoolLimits().backoff_s, "cluster/actors.py: pause after a loss, s"),
        "recover": Number(base.first_step_s, f"{where}, s from the command to the first update"),
    }


def _exchange(runs: Sequence[Run], update_per_group: float) -> float:
    pair = run_at(runs, learners=2)
    return 0.0 if pair is None else max(0.0, fmean(pair.update_s) - update_per_group * pair.groups / 2)


def costs_of(numbers: Numbers, groups: int) -> Costs:
    """What the simulation pays with. `groups`: of an update."""
    n = {name: number.value for name, number in numbers.items()}
    sent = n["latency"] + n["answer_bytes"] / n["bandwidth"]
    return Costs(
        call=n["call"],
        wait_per_call_out=n["wait_per_call_out"],
        answer=n["answer_bytes"] * n["transfer"],
        actor_extra=n["actor_extra"],
        record_per_group=n["store"] * n["episodes_per_group"],
        update_per_group=n["update_per_group"],
        exchange=n["exchange"],
        gather_per_group=sent + n["answer_bytes"] * n["transfer"],
        weights=n["latency"] + n["weights_bytes"] / n["bandwidth"],
        evaluate_every=int(n["evaluate_every"]),
        evaluate_groups=groups // 2,
        save_every=int(n["save_every"]),
        save=n["save"],
        node_life=n["node_life"],
        recover=n["recover"],
        stall=n["stall"],
    )
