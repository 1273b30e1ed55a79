"""The study of treatment channels as decision makers: what is gained and lost by splitting a regimen.

ICU-Sepsis and the synthetic cohort (fluid and vasopressor, five levels each) and the sepsis causal model (antibiotics,
ventilation, vasopressor): CFCQL, MACQL, OMAR, independent CQL and cloning on channels, and CQL and cloning on joint
actions beside them. Of every method three settings are tried, and one is chosen by fitted Q evaluation, cross-fitted by
patient, on a log that is not judged. Values are exact in the first and the last, of 20,480 simulated patients in the
cohort. `unseen`: share of joint actions recommended in the situations of the log whose density there, as joint
actions, is under the 5th percentile of the logged decisions' own. `departure`: D_CQL of one channel at a time and of
all together, against a clone of the clinicians. Intervals: interquartile mean over logs, 95 % bootstrap.

    python scripts/bench/factored.py [--quick] [--logs 5] [--processes 2] [--work DIR] [--done] [--out FILE]

Everything done is kept in DIR, and an interrupted study goes on there. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from refork.cluster.log_practice import acted_in, training_density
from refork.cluster.log_source import LogSource
from refork.envs.log_spec import Act, ActionSpec
from refork.replay.support import ood_share
from refork.replay.transitions import Transitions
from refork.scripts.bench.kept import is_kept, kept
from refork.scripts.bench.multi_agent_runs import DEPARTURES, departure
from refork.scripts.bench.studies import Settings, choice, interval, parsed, parser, report, trained
from refork.trainers.config import JobConfig, trainer_config_class
from refork.trainers.fqe_stack import NetworkSettings
from refork.trainers.joint_actions import JointActions

TUNING_LOG = 1000
"""Its seed; settings are chosen on it, and it is not judged."""
METHODS = ("cfcql", "macql", "omar", "cql", "bc", "cql, joint", "bc, joint")
METRICS = ("value", "unseen", *DEPARTURES)


@dataclass(frozen=True)
class Cell:
    """One simulator and who acted in its logs."""

    name: str
    env: str
    channels: Settings
    """Options of the simulator under which its channels are decision makers."""
    behaviour: str
    episodes: int
    gamma: float
    alphas: tuple[float, ...]
    """Weights of the conservative term that are tried, in the unit of the returns."""

    def job(self, method: str, settings: Settings, log_seed: int, tuning: bool, quick: bool) -> JobConfig:
        """As a job file would say it. Tuning leaves patients to validate on; what is judged has learnt from all."""
        kind, joint = method.split(",")[0], "joint" in method
        options = {
            "behaviour": self.behaviour,
            "episodes": self.episodes // 4 if quick else self.episodes,
            "log_seed": log_seed,
            "fractions": (0.8, 0.2, 0.0) if tuning else (1.0, 0.0, 0.0),
            "simulator": {} if joint else dict(self.channels),
        }
        shared: dict[str, Any] = {"gamma": self.gamma, "updates": 4, "steps_per_update": 25 if quick else 400}
        shared |= {"batch": 256, "learning_rate": 2e-3, "schedule": "linear", "target_rate": 0.02}
        fields = trainer_config_class(kind).model_fields
        return JobConfig.model_validate(
            {
                "seed": log_seed,
                "env": {"id": self.env, "options": options},
                "agent": {"kind": "q_networks", "options": {"hidden": [64, 64]}},
                "trainer": {"kind": kind, **{k: v for k, v in shared.items() if k in fields}, **settings},
            }
        )

    def tried(self, method: str) -> tuple[Settings, ...]:
        """As many settings for each."""
        if method.startswith("bc"):
            return tuple({"shrink": shrink} for shrink in (0.0, 1e-3, 1e-2))
        return tuple({"alpha": alpha} for alpha in self.alphas)


FACTORED: Settings = {"factored": True}
CELLS = (
    Cell("icu_sepsis 2500", "refork/IcuSepsis-v0", FACTORED, "expert", 2500, 1.0, (0.003, 0.01, 0.05)),
    Cell("icu_sepsis 10000", "refork/IcuSepsis-v0", FACTORED, "expert", 10_000, 1.0, (0.003, 0.01, 0.05)),
    Cell("sepsis_scm 2500", "refork/SepsisSCM-v0", FACTORED, "confounded", 2500, 0.99, (0.01, 0.05, 0.2)),
    Cell(
        "cohort 1500", "refork/SyntheticCohort-v0", {"channels": "factored"}, "clinician", 1500, 1.0, (0.02, 0.1, 0.5)
    ),
)


def as_joint(log: Transitions) -> Transitions:
    """The same log with the regimens as the actions of one decision maker."""
    known = JointActions(log.spec.action)
    spec = replace(log.spec, action=ActionSpec("discrete", (known.count,), ("regimen",)))
    return replace(log, spec=spec, actions=known.numbers(log.actions)[:, None])


def unseen(log: Transitions, act: Act) -> float:
    """Share of recommended regimens that the log has too little of."""
    density, some = training_density(as_joint(log)), np.linspace(0, len(log) - 1, min(len(log), 4000)).astype(np.int64)
    assert density is not None
    seen = np.asarray(log.observations[log.rows(some)])
    policy = JointActions(log.spec.action).probabilities(acted_in(log, act)[some])
    return ood_share(policy, density.of_actions(seen), density.threshold)


def judged(work: Path, cell: Cell, method: str, settings: Settings, log_seed: int, quick: bool) -> dict[str, float]:
    """`METRICS` of what one log teaches."""

    def judge() -> dict[str, float]:
        begun = time.process_time()
        asked = cell.job(method, settings, log_seed, False, quick)
        source = LogSource(asked.env)
        (act,) = trained(asked, source)
        assert source.simulator is not None
        found = {"value": source.simulator.truth(act).value, "unseen": unseen(source.log, act)}
        if "joint" not in method:
            (clone,) = trained(cell.job("bc", {}, log_seed, False, quick), source)
            found |= departure(source.log, [act], clone)
        return found | {"cpu_s": time.process_time() - begun}

    return dict(kept(work, f"{cell.name}-{method}-{log_seed}", judge))


def learnt(work: Path, cell: Cell, method: str, logs: int, quick: bool) -> dict[str, Any]:
    """Choose, train, judge."""
    tried = cell.tried(method)
    jobs = [cell.job(method, settings, TUNING_LOG, True, quick) for settings in tried]
    network = NetworkSettings(steps=200 if quick else 1200)
    best = kept(work, f"{cell.name}-{method}-chosen", lambda: choice(jobs, tried, network))
    rows = [judged(work, cell, method, best["settings"], seed, quick) for seed in range(logs)]
    return {"chosen": best, **{name: [row[name] for row in rows] for name in METRICS if name in rows[0]}}


def known(cell: Cell) -> dict[str, float]:
    """True values of whoever can act in the simulator."""
    simulator = LogSource(cell.job("bc", {}, 0, False, True).env).simulator
    assert simulator is not None
    return {name: simulator.behaviour_truth(name).value for name in simulator.behaviours}


def study(options: argparse.Namespace, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """All cells; each is told as it is finished."""
    asked = (options.logs, options.quick)
    waiting = [
        (c, {m: pool.submit(learnt, options.work, c, m, *asked) for m in METHODS})
        for c in CELLS
        if not options.done or all(_finished(options, c, m) for m in METHODS)
    ]
    result: dict[str, Any] = {"study": "factored"}
    details: dict[str, dict[str, Any]] = {"truth": {}, "chosen": {}, **{name: {} for name in METRICS[1:]}}
    for cell, futures in waiting:
        found = {method: future.result() for method, future in futures.items()}
        result[cell.name] = {method: interval(row["value"]) for method, row in found.items()}
        for name in METRICS[1:]:
            details[name][cell.name] = {m: interval(row[name]) for m, row in found.items() if name in row}
        details["truth"][cell.name] = known(cell)
        details["chosen"][cell.name] = {method: row["chosen"] for method, row in found.items()}
        show(cell.name, result[cell.name])
        show("  unseen", details["unseen"][cell.name])
    return result | details | {"logs": options.logs}


def _finished(options: argparse.Namespace, cell: Cell, method: str) -> bool:
    return all(is_kept(options.work, f"{cell.name}-{method}-{seed}") for seed in range(options.logs))


def show(name: str, row: Mapping[str, Sequence[float]]) -> None:
    """For people."""
    told = "  ".join(f"{method} {middle:.4f} [{low:.4f}, {high:.4f}]" for method, (low, middle, high) in row.items())
    print(f"{name:18} {told}", flush=True)


def main() -> None:
    options = parsed(parser(__doc__, "logs", "small logs, short trainings, 2 logs: a minute"), "logs")
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        result = study(options, pool)
    report(result, options.out)


if __name__ == "__main__":
    main()
