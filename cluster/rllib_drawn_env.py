"""One agent's tasks for RLlib: one drawn at every reset, seen as a flat vector of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.env.env_context import EnvContext
from refork.envs.registry import make_env


class DrawnTaskEnv(gym.Env[np.ndarray, Any]):
    """RLlib's networks take a Box; a dict of arrays is flattened, the rest is handed through."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it per instance)

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: `id`, `tasks` (names), and `options` of the environment."""
        self._id, self._tasks, self._options = config["id"], list(config["tasks"]), dict(config["options"])
        self._worker = config.worker_index if isinstance(config, EnvContext) else 0
        self._rng = np.random.default_rng()
        self._task, self._env = self._tasks[0], self._open(self._tasks[0])
        self.action_space = self._env.action_space
        self.observation_space: Any = gym.spaces.flatten_space(self._env.observation_space)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """RLlib seeds the first environments of two workers alike, so the worker's number is part of the seed."""
        if seed is not None:
            self._rng = np.random.default_rng([seed, self._worker])
        task = self._tasks[int(self._rng.integers(len(self._tasks)))]
        if task != self._task:
            self._env.close()
            self._task, self._env = task, self._open(task)
        observation, info = self._env.reset(seed=int(self._rng.integers(2**31)))
        return self._flat(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return self._flat(observation), reward, terminated, truncated, info

    def close(self) -> None:
        self._env.close()

    def _open(self, task: str) -> Any:
        return make_env(self._id, task=task, **self._options)

    def _flat(self, observation: Any) -> np.ndarray:
        flat = gym.spaces.flatten(self._env.observation_space, observation)
        return np.asarray(flat, self.observation_space.dtype)
