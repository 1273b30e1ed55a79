"""Runs of the confounding study: one log, all methods, each chosen from the log alone and then judged exactly."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from refork.agents.log_policy import LogPolicy
from refork.cluster.log_source import LogSource
from refork.envs.clinical.confounded_clinic import ConfoundedClinic
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.log_spec import Act
from refork.replay.transitions import LoggedExperience
from refork.scripts.bench.kept import kept
from refork.scripts.bench.studies import Settings
from refork.trainers.config import JobConfig
from refork.trainers.delphic.trainer import Trainer as Delphic
from refork.trainers.make import make_trainer
from refork.trainers.selection import select

ALPHAS = (0.01, 0.1, 1.0)
TRIED: dict[str, tuple[str, tuple[Settings, ...]]] = {
    "bc": ("bc", tuple({"shrink": s} for s in (0.0, 0.001, 0.01))),
    "cql": ("cql", tuple({"alpha": a} for a in ALPHAS)),
    "delphic": ("delphic", tuple({"alpha": a} for a in ALPHAS)),
    "delphic, adjusted": ("delphic", tuple({"alpha": a, "adjust": True} for a in ALPHAS)),
}
"""Method -> trainer and as many settings for each; the weight of the penalty is not tuned."""


@dataclass(frozen=True)
class Cell:
    """One simulator at one strength of confounding."""

    name: str
    strength: float
    episodes: int
    updates: int
    world_epochs: int

    @property
    def title(self) -> str:
        return f"{self.name} {self.strength:g}"


def _gamma(cell: Cell) -> float:
    """The clinic's conditions do not depend on what was done before: a discount near 0 is right, and learns fastest."""
    return 0.99 if cell.name == "sepsis" else 0.05


def job(cell: Cell, seed: int, kind: str, settings: Settings) -> JobConfig:
    """Log, split and weights all come from `seed`."""
    sepsis = cell.name == "sepsis"
    trainer = {"kind": kind, "updates": cell.updates, "steps_per_update": 300} | dict(settings)
    trainer |= {"learning_rate": 1e-3, "batch": 128} if sepsis else {"learning_rate": 3e-3, "batch": 128}
    trainer |= {"gamma": _gamma(cell)}
    trainer |= {"world_epochs": cell.world_epochs} if kind == "delphic" else {}
    trainer |= {"target_rate": 0.02} if kind != "bc" and not sepsis else {}
    agent = {"hidden": [64, 64], "observe": "both"} if sepsis else {"hidden": [32]}
    return JobConfig.model_validate(
        {
            "seed": seed,
            "env": {
                "id": "refork/SepsisSCM-v0" if sepsis else "refork/ConfoundedClinic-v0",
                "options": {
                    "behaviour": "confounded",
                    "episodes": cell.episodes,
                    "log_seed": seed,
                    "simulator": {"strength": cell.strength},
                },
            },
            "agent": {"kind": "q_networks", "options": agent},
            "trainer": trainer,
        }
    )


def place(work: Path, cell: Cell, seed: int) -> Path:
    """Where what `run` found is kept."""
    return work / f"{cell.title.replace(' ', '_')}_{cell.episodes}_{cell.updates}_{cell.world_epochs}_{seed}.json"


def judged(work: Path, cell: Cell, seed: int) -> dict[str, Any]:
    """What `run` finds, from the folder `work` where it is there."""
    return dict(kept(work, place(work, cell, seed).stem, lambda: run(cell, seed)))


def run(cell: Cell, seed: int) -> dict[str, Any]:
    """{method: {chosen, value, values, estimates, metrics}} and the CPU seconds."""
    torch.set_num_threads(1)
    begun = time.process_time()
    source = LogSource(job(cell, seed, "bc", {}).env)
    steps = source.transitions("train")
    logged = LoggedExperience("train", source.log, steps, 0.0)
    worlds: list[Delphic] = []
    found: dict[str, Any] = {}
    for method, (kind, tried) in TRIED.items():
        trained = [_trained(source, job(cell, seed, kind, settings), logged, worlds) for settings in tried]
        found[method] = _chosen(source, tried, trained, _gamma(cell))
    return found | {"cpu_s": time.process_time() - begun}


def _trained(
    source: LogSource, made: JobConfig, logged: LoggedExperience, worlds: list[Delphic]
) -> tuple[Act, dict[str, float]]:
    """The policy and the last metrics; the worlds of the log are fitted once."""
    trainer = make_trainer(made, source.shape)
    if isinstance(trainer, Delphic):
        if worlds:
            trainer.adopt(worlds[0])
        else:
            worlds.append(trainer)
    row: dict[str, float] = {}
    for update in range(made.trainer.updates):
        row = trainer.update(update, [logged])
    return LogPolicy(source.spec, trainer.weights(), 1).member(0), row


def _chosen(
    source: LogSource, tried: Sequence[Settings], trained: Sequence[tuple[Act, Mapping[str, float]]], gamma: float
) -> dict[str, Any]:
    """Chosen as the other studies do, with the discount of the training."""
    assert source.simulator is not None
    acts, rows = [act for act, _ in trained], [row for _, row in trained]
    training, validation = (source.log.subset(source.splits[part]) for part in ("train", "validation"))
    found = select({str(k): [act] for k, act in enumerate(acts)}, validation, training=training, gamma=gamma)
    values = [source.simulator.truth(act).value for act in acts]
    best = int(found.name)
    metrics = {k: v for k, v in rows[best].items() if k.startswith("worlds/") or k == "changed_actions"}
    return {
        "chosen": dict(tried[best]),
        "value": values[best],
        "values": values,
        "estimates": [score.value for score in found.scores.values()],
        "metrics": metrics,
    }


def known(cell: Cell) -> dict[str, float]:
    """True values to compare with: the log's own behaviour, and the best there is."""
    if cell.name == "sepsis":
        sepsis = SepsisScm(strength=cell.strength)
        best = {"best that sees diabetes": sepsis.model.best_value()}
        return {"behaviour": sepsis.behaviour_truth("confounded").value} | best
    clinic = ConfoundedClinic(cell.strength)
    right = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    best = {"best": clinic.truth(lambda states, _allowed: right[states][:, None]).value}
    return {"behaviour": clinic.behaviour_truth("confounded").value} | best
