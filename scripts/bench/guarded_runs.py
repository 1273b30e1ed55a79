"""Trains one method of the guarded study on one log, and measures it in the true simulator; what is done is kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.agents.density import Density
from refork.cluster.log_practice import training_density
from refork.cluster.log_source import LogSource
from refork.envs.clinical import icu_sepsis
from refork.envs.clinical.cohort import simulate
from refork.envs.log_spec import Act, column_number
from refork.replay.support import SAFETY, ood_share
from refork.scripts.bench.kept import is_kept, kept
from refork.scripts.bench.studies import Settings, choice, trained
from refork.trainers.config import JobConfig, trainer_config_class
from refork.trainers.fqe_stack import NetworkSettings

METRICS = ("return", "ood", "spo2", "urine")
TUNING_LOG = 1000
"""Its seed; settings are chosen on it, and it is not judged."""
PATIENTS = 2048
"""Simulated to see which situations a policy reaches in the cohort."""
REACHED = 4000
"""Most of these situations whose density is asked for."""
Method = tuple[str, Settings]
"""Trainer and its settings."""


@dataclass(frozen=True)
class Cell:
    """One simulator, who acted in its logs, and how long to train on them."""

    name: str
    env: str
    behaviour: str
    episodes: int
    limited: bool
    """It has columns with limits."""

    def job(self, kind: str, settings: Settings, log_seed: int, tuning: bool, quick: bool) -> JobConfig:
        """As a job file would say it. Tuning leaves patients to validate on; what is judged has learnt from all."""
        options = {
            "behaviour": self.behaviour,
            "episodes": self.episodes // 4 if quick else self.episodes,
            "log_seed": log_seed,
            "fractions": (0.8, 0.2, 0.0) if tuning else (1.0, 0.0, 0.0),
        }
        shared: dict[str, Any] = {"gamma": 1.0, "updates": 4, "steps_per_update": 50 if quick else 300, "batch": 256}
        shared |= {"learning_rate": 3e-3, "schedule": "linear", "target_rate": 0.05}
        fields = trainer_config_class(kind).model_fields
        trainer = {"kind": kind, **{k: v for k, v in shared.items() if k in fields}, **settings}
        return JobConfig.model_validate(
            {
                "seed": log_seed,
                "env": {"id": self.env, "options": options},
                "agent": {"kind": "q_networks", "options": {"hidden": [64, 64]}},
                "trainer": trainer,
            }
        )


CELLS = {
    cell.name: cell
    for cell in (
        Cell("icu_sepsis", "refork/IcuSepsis-v0", "expert", 2500, False),
        Cell("cohort_clinician", "refork/SyntheticCohort-v0", "clinician", 1500, True),
        Cell("cohort_protocol", "refork/SyntheticCohort-v0", "protocol", 1500, True),
    )
}


def chosen(
    work: Path, cell: Cell, method: str, asked: tuple[str, Settings, Sequence[Settings]], quick: bool
) -> dict[str, Any]:
    """The setting of the greatest FQE value on a log of its own."""
    kind, fixed, tried = asked
    jobs = [cell.job(kind, {**fixed, **settings}, TUNING_LOG, True, quick) for settings in tried]
    network = NetworkSettings(hidden=(64, 64), steps=200 if quick else 2000)
    return dict(kept(work, f"{cell.name}-{method}-chosen", lambda: choice(jobs, tried, network)))


def judged(work: Path, cell: Cell, method: str, asked: Method, log_seed: int, quick: bool) -> dict[str, float]:
    """Return, OOD share and violations in the true simulator of what one log teaches."""

    def judge() -> dict[str, float]:
        begun = time.process_time()
        job = cell.job(*asked, log_seed, False, quick)
        source = LogSource(job.env)
        (act,) = trained(job, source)
        spent = time.process_time() - begun
        return measured(source, act, log_seed) | {"cpu_s": spent}

    return dict(kept(work, f"{cell.name}-{method}-{log_seed}", judge))


def is_judged(work: Path, cell: Cell, method: str, log_seed: int) -> bool:
    """`judged` is done."""
    return is_kept(work, f"{cell.name}-{method}-{log_seed}")


def known(work: Path, cell: Cell) -> dict[str, dict[str, float]]:
    """The same of the simulator's own policies, against one log."""

    def measure() -> dict[str, dict[str, float]]:
        source = LogSource(cell.job("bc", {}, 0, False, False).env)
        assert source.simulator is not None
        named = {name: source.simulator.policy(name) for name in source.simulator.behaviours}
        return {name: measured(source, act, 0) for name, act in named.items() if act is not None}

    return dict(kept(work, f"{cell.name}-known", measure))


def measured(source: LogSource, act: Act, log_seed: int) -> dict[str, float]:
    """By `METRICS`; nothing but the log's training part tells what is out of support."""
    assert source.simulator is not None
    density = training_density(source.log.subset(source.splits["train"]))
    assert density is not None
    found = {"return": source.simulator.truth(act).value}
    if source.spec.observation.kind == "states":
        return found | {"ood": _solved_ood(act, density)}
    return found | _simulated(source, act, density, log_seed)


def _solved_ood(act: Act, density: Density) -> float:
    """Weighted by how often the policy decides in each state of ICU-Sepsis: a linear solve."""
    tables, deciding = icu_sepsis.tables(), np.arange(icu_sepsis.DEATH)
    policy = act(deciding, None)[:, 0]
    step = np.einsum("sa,sap->sp", policy, tables.transitions[deciding])[:, deciding]
    visits = np.linalg.solve(np.eye(len(deciding)) - step.T, tables.start[deciding])
    return ood_share(policy, density.of_actions(deciding), density.threshold, visits)


def _simulated(source: LogSource, act: Act, density: Density, seed: int) -> dict[str, float]:
    block = simulate(PATIENTS, act, 2_000_003 + seed, 0)
    steps = np.arange(block.filled.shape[1])
    reached = block.filled[steps < block.lengths[:, None]]
    led = block.filled[(steps < block.lengths[:, None]) & (steps > 0)]
    some = reached[np.random.default_rng(0).permutation(len(reached))[:REACHED]]
    found = {"ood": ood_share(act(some, None)[:, 0], density.of_actions(some), density.threshold)}
    for name, limit in zip(("spo2", "urine"), SAFETY, strict=True):
        found[name] = float(limit.violated(led[:, column_number(source.spec.observation, limit.column)]).mean())
    return found
