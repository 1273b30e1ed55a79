"""Trains, judges and measures one cell of the study of several decision makers; what is done is kept on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refork.cluster.log_source import LogSource
from refork.envs.log_spec import Act
from refork.envs.multi.skill import SkilledSimulator
from refork.replay.transitions import Transitions
from refork.scripts.bench.kept import is_kept, kept
from refork.scripts.bench.studies import Settings, choice, trained
from refork.trainers.cfcql.loss import counterfactual_divergence, joint_divergence
from refork.trainers.config import JobConfig, trainer_config_class
from refork.trainers.fqe_stack import NetworkSettings

DEPARTURES = ("d_counterfactual", "d_joint")
"""D_CQL of one decision maker at a time, and of all together."""


@dataclass(frozen=True)
class Cell:
    """One log that all methods learn from."""

    name: str
    env: str
    simulator: tuple[tuple[str, Any], ...]
    """Options of the simulator."""
    behaviour: str
    episodes: int
    trainer: tuple[tuple[str, Any], ...]
    """Fields that all methods share."""
    fqe_steps: int
    """Gradient steps of the fitted Q evaluation that chooses settings."""

    def job(self, method: str, settings: Settings, seeds: int, seed: int) -> JobConfig:
        options = {"behaviour": self.behaviour, "episodes": self.episodes, "simulator": dict(self.simulator)}
        known = trainer_config_class(method).model_fields
        shared = {name: value for name, value in self.trainer if name in known}  # cloning has no target network
        trainer = {"kind": method, "seeds": seeds, **shared, **settings}
        return JobConfig.model_validate(
            {
                "seed": seed,
                "env": {"id": self.env, "options": {**options, "fractions": (0.8, 0.2, 0.0)}},
                "agent": {"kind": "q_networks", "options": {"hidden": [64, 64]}},
                "trainer": trainer,
            }
        )


@cache
def source(cell: Cell) -> LogSource:
    """Its log, the same for all methods and seeds."""
    return LogSource(cell.job("bc", {}, 1, 0).env)


def simulator(cell: Cell) -> SkilledSimulator:
    found = source(cell).simulator
    assert isinstance(found, SkilledSimulator)
    return found


def learnt(cell: Cell, method: str, settings: Settings, seeds: int, seed: int) -> Sequence[Act]:
    """The policies of a training of `seeds` stacked seeds from `seed` on."""
    return trained(cell.job(method, settings, seeds, seed), source(cell))


def chosen(work: Path, cell: Cell, method: str, tried: Sequence[Settings], fqe: NetworkSettings) -> dict[str, Any]:
    """The setting of the greatest FQE value, each tried with one seed that is not judged."""
    jobs = [cell.job(method, settings, 1, 1000) for settings in tried]
    return dict(kept(work, f"{cell.name}/{method}/chosen", lambda: choice(jobs, tried, fqe, source(cell))))


def judged(work: Path, cell: Cell, method: str, settings: Settings, seeds: int) -> dict[str, Any]:
    """True returns and normalised scores of every seed, and how far the policies depart from the clone of the log."""

    def judge() -> dict[str, Any]:
        begun = time.process_time()
        acts = learnt(cell, method, settings, seeds, 0)
        spent, known = time.process_time() - begun, simulator(cell)
        truths = [known.truth(act, seed=1).value for act in acts]
        found = {"returns": truths, "scores": [known.score(value) for value in truths], "cpu_s": spent}
        return found | (
            {} if known.spec.action.kind == "continuous" else departure(source(cell).log, acts, _clone(cell))
        )

    return dict(kept(work, f"{cell.name}/{method}/judged", judge))


def is_judged(work: Path, cell: Cell, method: str) -> bool:
    """`judged` is done."""
    return is_kept(work, f"{cell.name}/{method}/judged")


def departure(log: Transitions, acts: Sequence[Act], clone: Act) -> dict[str, float]:
    """D_CQL of the policies against a clone of the behaviour, median over seeds and 1,000 logged observations."""
    rows = np.linspace(0, len(log.observations) - 1, 1000).astype(np.int64)
    seen = np.asarray(log.observations[rows])
    behaviour = torch.from_numpy(clone(seen, None))
    policies = torch.from_numpy(np.stack([act(seen, None) for act in acts]).astype(np.float64))
    one, joint = (f(policies, behaviour).median() for f in (counterfactual_divergence, joint_divergence))
    return dict(zip(DEPARTURES, (float(one), float(joint)), strict=True))


@cache
def _clone(cell: Cell) -> Act:
    return learnt(cell, "bc", {}, 1, 2000)[0]


def known(work: Path, cell: Cell) -> dict[str, float]:
    """Normalised score of the log itself, and the true returns of random agents and of the expert."""

    def measure() -> dict[str, float]:
        simulated = simulator(cell)
        logged = float(source(cell).log.returns(1.0).mean())
        worst, best = simulated.reference
        return {"behaviour": simulated.score(logged), "random_return": worst, "expert_return": best}

    return dict(kept(work, f"{cell.name}/known", measure))
