"""Every random stream of a rollout comes from (run seed, task, episode, attempt), so it never matters who plays it."""

from __future__ import annotations

import hashlib

import numpy as np


def _words(text: str) -> tuple[int, ...]:
    digest = hashlib.sha256(text.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "little") for i in (0, 4, 8, 12))


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """The stream for one purpose, e.g. `generator(seed, f"rollout/{task}", episode, attempt)`."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(*_words(purpose), *counters)))


def task_seed(seed: int, task: str) -> int:
    """What an environment is reset with: the same for all rollouts of a task, so that they share one state DAG."""
    return int(generator(seed, f"task/{task}").integers(2**31))
