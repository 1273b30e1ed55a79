"""Graph games for RLlib: both agents in every step, both ends in the last one, several sizes under one policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from refork.envs.graph_game.env import GraphGameEnv
from refork.envs.graph_game.instance import AGENTS
from refork.envs.graph_game.opening import open_instance

Dicts = dict[Any, Any]
OPEN = 64
"""Games kept open by an environment; of others those least recently drawn are made again."""


class GraphGameMultiAgentEnv(MultiAgentEnv):
    """Plays one of several games in each episode, all padded to the sizes of the largest.

    RLlib's own PettingZoo wrapper is not used: it takes agents from the first observation and can lose the last one.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """`config`: `tasks` (names, folders or instances) or one `task`, and GraphGameEnv's other options.

        `source` (its `instance(name)`) makes instances of names in its own way. With `max_sites` and `max_nodes` given,
        a game is opened when it is first drawn; there may then be thousands.
        """
        options = dict(config)
        self._tasks: Sequence[Any] = options.pop("tasks", None) or [options.pop("task")]
        source = options.pop("source", None)
        self._instance = open_instance if source is None else source.instance
        if "max_sites" not in options or "max_nodes" not in options:
            instances = [self._instance(task) for task in self._tasks]
            options.setdefault("max_sites", max(i.sites for i in instances))
            options.setdefault("max_nodes", max(i.nodes for i in instances))
        self._options = options
        self._game = lru_cache(OPEN)(self._make)
        self.game = self._game(0)
        self.possible_agents = list(self.game.possible_agents)
        self.agents = list(self.game.agents)
        self.observation_spaces = {agent: self.game.observation_space(agent) for agent in AGENTS}
        self.action_spaces = {agent: self.game.action_space(agent) for agent in AGENTS}
        super().__init__()
        self._worker = config.worker_index if isinstance(config, EnvContext) else 0
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: Dicts | None = None) -> tuple[Dicts, Dicts]:
        """RLlib seeds the first environments of two workers alike, so the worker's number is part of the seed."""
        if seed is not None:
            self._rng = np.random.default_rng([seed, self._worker])
        self.game = self._game(int(self._rng.integers(len(self._tasks))))
        observations, infos = self.game.reset(seed=int(self._rng.integers(2**31)))
        self.agents = list(self.game.agents)
        return observations, infos

    def step(self, action_dict: Dicts) -> tuple[Dicts, Dicts, Dicts, Dicts, Dicts]:  # type: ignore[override]
        """Raises ValueError for an illegal or missing move."""
        observations, rewards, terminated, truncated, infos = self.game.step(action_dict)
        self.agents = list(self.game.agents)
        ended = not self.agents
        return observations, rewards, {**terminated, "__all__": ended}, {**truncated, "__all__": False}, infos

    @property
    def games(self) -> list[GraphGameEnv]:
        """All of them, in the order of the tasks."""
        return [self._game(number) for number in range(len(self._tasks))]

    def _make(self, number: int) -> GraphGameEnv:
        return GraphGameEnv(self._instance(self._tasks[number]), **self._options)
