"""A team of agents as a PettingZoo ParallelEnv that can go back; the worlds fill in what a step does."""

from __future__ import annotations

import hashlib
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv
from refork.envs.forkable import BadInput, Noise, Outcome, Reward, StateMismatch, StateRef
from refork.envs.log_spec import LogSpec

Infos = dict[str, dict[str, Any]]
Seen = dict[str, np.ndarray]
Arrays = dict[str, np.ndarray]


class TeamEnv(ParallelEnv[str, np.ndarray, Any]):
    """All agents act in every step; all are cut off together at the horizon.

    Moves have no randomness of their own, so `noise` makes no difference when a state is restored; starts are drawn
    from a generator that `reset(seed=...)` seeds.
    """

    def __init__(self, task: str, spec: LogSpec) -> None:
        self.task, self.spec = task, spec
        self.possible_agents = list(spec.action.names)
        self.agents: list[str] = []
        self._rng, _ = seeding.np_random(None)
        self._t, self._earned = 0, 0.0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    @abstractmethod
    def _begin(self, rng: np.random.Generator) -> None:
        """A start drawn with `rng`."""

    @abstractmethod
    def _move(self, actions: Sequence[Any]) -> Sequence[float]:
        """One step of all agents, in order -> what each earned."""

    @abstractmethod
    def _arrays(self) -> Arrays:
        """The state, as copies."""

    @abstractmethod
    def _become(self, arrays: Arrays, t: int) -> None:
        """The inverse of `_arrays`, after that many steps."""

    @abstractmethod
    def _observations(self) -> Seen: ...

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, Infos]:
        """`options` are PettingZoo's; there are none."""
        if seed is not None:
            self._rng, _ = seeding.np_random(seed)
        self._begin(self._rng)
        self._t, self._earned, self.agents = 0, 0.0, list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, Any]
    ) -> tuple[Seen, dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Infos hold the reward of the team, the mean of its agents'.

        Raises ValueError when a move is missing or not in the agent's space, RuntimeError after the end.
        """
        if not self.agents:
            raise RuntimeError("the episode has ended: call reset or restore")
        earned = self._move([self._checked(agent, actions) for agent in self.agents])
        team, acted = float(np.mean(earned)), self.agents
        self._t, self._earned = self._t + 1, self._earned + team
        cut = self._t == self.spec.horizon
        self.agents = [] if cut else list(self.possible_agents)
        rewards = {agent: float(reward) for agent, reward in zip(acted, earned, strict=True)}
        infos = {agent: {"team_reward": team} for agent in acted}
        return self._observations(), rewards, dict.fromkeys(acted, False), dict.fromkeys(acted, cut), infos

    def _checked(self, agent: str, actions: Mapping[str, Any]) -> Any:
        if agent not in actions or not self.action_space(agent).contains(actions[agent]):
            space, given = self.action_space(agent), actions.get(agent, "none")
            raise ValueError(f"step {self._t}: move of {agent} is {given}; expected one of {space}")
        return actions[agent]

    @property
    def state_id(self) -> str:
        """Of the task, the step, the state and what was earned."""
        return self._id(self._t, self._earned, self._arrays())

    def _id(self, t: int, earned: float, arrays: Arrays) -> str:
        sha = hashlib.sha256(f"{self.task}/{t}/{earned!r}".encode())
        for name, value in sorted(arrays.items()):
            sha.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return sha.hexdigest()

    def snapshot(self) -> StateRef:
        arrays = {name: value.tolist() for name, value in self._arrays().items()}
        return StateRef(self.state_id, {"task": self.task, "t": self._t, "earned": self._earned, "arrays": arrays})

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Seen:
        """Raises StateMismatch when `ref` is of another task, or not what its id names."""
        payload = ref.payload
        if payload.get("task") != self.task:
            raise StateMismatch(f"the reference is of the task {payload.get('task')}, here it is {self.task}")
        t, earned = int(payload["t"]), float(payload["earned"])
        arrays = {name: np.array(value) for name, value in payload["arrays"].items()}
        if (found := self._id(t, earned, arrays)) != ref.state_id:
            raise StateMismatch(f"step {t} restored is {found[:12]}, the reference names {ref.state_id[:12]}")
        self._t, self._earned = t, earned
        self._become(arrays, t)
        self.agents = [] if self._t == self.spec.horizon else list(self.possible_agents)
        return self._observations()

    def grade(self) -> Outcome:
        """The return of the team so far."""
        return Reward(self._earned)

    def close(self) -> None:
        """Nothing is held."""


def parse_task(task: Any, prefix: str, endings: str = "") -> tuple[int, str]:
    """'PREFIX-n5', or with one of the endings ('|-continuous') behind -> 5 and the ending. Raises BadInput."""
    found = re.fullmatch(rf"{prefix}-n(\d+)({endings})", task) if isinstance(task, str) else None
    if found is None:
        known = " or ".join(f"{prefix}-nNUMBER{end}" for end in endings.split("|"))
        raise BadInput(f"task {task!r}: expected {known}, e.g. {prefix}-n3")
    return int(found[1]), found[2]
