"""What more actors, learners, nodes and staleness give: runs of `refork train` side by side, and what they move.

The same work is run by 1 and 2 rollout actors, by 1 and 2 learners that play themselves, by one actor a step ahead,
and by 1, 2 and 3 nodes with an actor each; nodes are real ones, started on this host in a network of their own (needs
root), so that they cannot give more than its cores. Two kinds of work: the repair menu in sandboxes, where every task
is new and nothing is answered from what was executed before, and the chain, where an episode takes milliseconds and
what is left is overhead. Rates are episodes per second after the first update. With the numbers goes what
bench/cluster_model.py is made from: seconds of every group, costs of a call, a byte, a save (--out).

The last line is one JSON object, of the repair menu; below "chain" the same of the chain (not with --quick).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from refork.cluster.resources import cores
from refork.envs.swe.taskset import default_folder
from refork.scripts.bench.hosts import Hosts
from refork.scripts.bench.scaling_probes import call_costs, update_costs
from refork.scripts.bench.scaling_runs import Measured, Place, Work, chain, measure, repair
from refork.scripts.bench.toy_tasks import toy_set

BASE = Place(actors=1)
HERE = (BASE, Place(actors=2), Place(actors=1, staleness=1), Place(), Place(learners=2))
NODES = 3


@contextmanager
def task_set(given: Path | None, count: int) -> Iterator[Path]:
    """A built task set, or `count` toy tasks where none is built."""
    folder = given or default_folder()
    if folder.exists():
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="refork-toy-") as name:
        print(f"{folder}: no task set is built; {count} toy tasks are taken", flush=True)
        toy_set(Path(name), count)
        yield Path(name)


def on_nodes(works: Sequence[Work], counts: Sequence[int]) -> Iterator[Measured]:
    """Each work on so many nodes, which join one after the other."""
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as name, Hosts(Path(name) / "ray") as hosts:
        hosts.add("--num-cpus", "1")
        for count in range(1, max(counts) + 1):
            hosts.add("--num-cpus", "1", "--resources", '{"sandbox": 1}')
            for work in works if count in counts else ():
                yield measure(work, Place(actors=count, nodes=count), hosts)


def all_runs(works: Sequence[Work], quick: bool) -> Iterator[Measured]:
    """Every work in every place; with `quick`, not on 2 nodes."""
    for work in works:
        for place in HERE:
            yield measure(work, place)
    if os.geteuid() != 0:
        print("nodes: left out, a network of their own needs root", flush=True)
        return
    yield from on_nodes(works, (1, NODES) if quick else range(1, NODES + 1))


def ratios(runs: Sequence[Measured]) -> dict[str, float | None]:
    """Of the runs of one work; None for what was not run."""
    rates = {run.place: run.rate for run in runs}

    def over(place: Place, base: Place) -> float | None:
        return round(rates[place] / rates[base], 3) if place in rates and base in rates else None

    return {
        "speedup_2_actors": over(Place(actors=2), BASE),
        "speedup_2_learners": over(Place(learners=2), Place()),
        "nodes_3_over_1": over(Place(actors=NODES, nodes=NODES), Place(actors=1, nodes=1)),
        "first_step_s": round(next(run.first_step_s for run in runs if run.place == BASE), 2),
        "stale_over_sync": over(Place(actors=1, staleness=1), BASE),
    }


def bytes_per_step(work: Work, costs: dict[str, float]) -> int:
    """Serialised, one node: the weights once, and of every group what is asked and what comes back."""
    return round(costs["weights_bytes"] + work.tasks * (costs["ask_bytes"] + costs["answer_bytes"]))


def show(run: Measured) -> None:
    print(
        f"{run.work:7s} {run.place.label:30s} {run.rate:8.2f} episodes/s   first step {run.first_step_s:5.1f} s   "
        f"waiting {sum(run.collect_s[1:]):6.2f} s   updates {sum(run.update_s[1:]):5.2f} s",
        flush=True,
    )


def study(tasks: Path | None, quick: bool) -> dict[str, Any]:
    """All that is measured, as JSON values."""
    updates, count = (2, 4) if quick else (5, 12)
    load = os.getloadavg()[0]
    print(f"{cores()} cores, load {load:.1f} before; speed-ups are those of an idle machine only below 0.3", flush=True)
    with task_set(tasks, updates * count) as folder:
        works = (repair(folder, updates, count), *(() if quick else (chain(60),)))
        runs: list[Measured] = []
        for run in all_runs(works, quick):
            show(run)
            runs.append(run)
        costs = {work.name: update_costs(work, 2 if quick else 8) for work in works}
        found: dict[str, Any] = {
            work.name: {
                **ratios([run for run in runs if run.work == work.name]),
                "bytes_per_step": bytes_per_step(work, costs[work.name]),
            }
            for work in works
        }
    called = call_costs(50 if quick else 200)
    measured = [{**asdict(run), "rate": round(run.rate, 3)} for run in runs]
    return {"quick": quick, "cores": cores(), "load": load, **found, "costs": costs, "calls": called, "runs": measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under two minutes: few tasks, no chain, no 2 nodes")
    parser.add_argument("--tasks", type=Path, default=None, help="a built task set; default: that of `refork tasks`")
    parser.add_argument("--out", type=Path, default=None, help="file for all that was measured")
    given = parser.parse_args()
    found = study(given.tasks, given.quick)
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({**found["repair"], **({"chain": found["chain"]} if "chain" in found else {})}))


if __name__ == "__main__":
    main()
