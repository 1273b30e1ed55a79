"""One episode of Equal Line as a PettingZoo ParallelEnv that can go back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from refork.envs.multi.equal_line import MOVES, Line, LineState
from refork.envs.multi.team_env import Arrays, Seen, TeamEnv, parse_task


class EqualLineEnv(TeamEnv):
    """Tasks are `line-n5`. Every agent sees all positions, and earns what the team earns."""

    metadata = {"name": "equal_line_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, task: str = "line-n5") -> None:
        """Raises BadInput."""
        self.line = Line(parse_task(task, "line")[0])
        super().__init__(task, self.line.spec)
        box = spaces.Box(0.0, 1.0, (self.line.n,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces: dict[str, spaces.Space[Any]] = {
            agent: spaces.Discrete(len(MOVES)) for agent in self.possible_agents
        }
        self.reset()

    def _begin(self, rng: np.random.Generator) -> None:
        self._state = self.line.begin(1, rng)

    def _move(self, actions: Sequence[Any]) -> Sequence[float]:
        self._state, rewards = self.line.step(self._state, np.array([actions], np.int64))
        return [float(rewards[0])] * self.line.n

    def _arrays(self) -> Arrays:
        return {"positions": self._state.positions.copy(), "counted": self._state.counted.copy()}

    def _become(self, arrays: Arrays, t: int) -> None:
        self._state = LineState(**arrays)

    def _observations(self) -> Seen:
        seen = self.line.observe(self._state)[0]
        return {agent: seen.copy() for agent in self.possible_agents}
