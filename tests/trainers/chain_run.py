"""A run on the chain in this process, for tests and nothing else."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from refork.agents.registry import make_policy
from refork.envs.chain import FEATURES, START, ChainEnv
from refork.replay.counterfactual import ForkConfig, GroupRequest, collect_group
from refork.replay.trajectory import TaskExperience
from refork.trainers.config import JobConfig
from refork.trainers.loop import Loop, Weights
from refork.trainers.make import make_trainer
from refork.trainers.sampler import TaskSampler

NAMES = tuple(f"x{i}" for i in range(FEATURES))
PRIOR = dict(zip(NAMES, START.tolist(), strict=True))


class ChainCollector:
    def __init__(self, env: type[ChainEnv] = ChainEnv) -> None:
        self._env = env

    def collect(
        self, requests: Sequence[GroupRequest], weights: Weights, version: int, forks: ForkConfig | None
    ) -> list[TaskExperience]:
        policy = make_policy("edit_scorer", weights)
        return [collect_group(self._env(r.task), policy, r, forks, version) for r in requests]

    def close(self) -> None:
        pass


class Rows:
    """Tracker and checkpointer that keep everything."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.saved: list[tuple[int, Mapping[str, Any]]] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append((step, dict(metrics)))

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        self.saved.append((step, state))

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def chain_job(kind: str = "crr", hidden: Sequence[int] = (), **trainer: Any) -> JobConfig:
    section = {"kind": kind, "learning_rate": 0.2, "group": 3, "tasks_per_update": 8, **trainer}
    agent = {"options": {"hidden": list(hidden), "prior": PRIOR}}
    return JobConfig.model_validate({"trainer": section, "agent": agent})


def chain_loop(job: JobConfig, tasks: int = 64, collector: Any = None) -> tuple[Loop, Rows]:
    rows = Rows()
    sampler = TaskSampler([f"chain-{i}" for i in range(tasks)], job.seed, job.trainer.quarantine)
    return Loop(job, make_trainer(job, NAMES), sampler, collector or ChainCollector(), rows, rows), rows


def weights_of(loop: Loop) -> np.ndarray:
    return np.concatenate([w.ravel() for w in loop.trainer.weights().values()])
