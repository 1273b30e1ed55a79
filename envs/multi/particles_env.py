"""Cooperative navigation, played by the package `mpe2` itself, as a PettingZoo ParallelEnv that can go back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from refork.envs.forkable import BadInput
from refork.envs.multi.particles import Particles
from refork.envs.multi.team_env import Arrays, Seen, TeamEnv, parse_task

SEEDS = 2**31


class ParticlesEnv(TeamEnv):
    """Tasks are `spread-n3` and `spread-n3-continuous`; actions as in the logs (envs/multi/particles.py).

    Every agent earns what the package pays it.
    """

    metadata = {"name": "particles_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012

    def __init__(self, task: str = "spread-n3") -> None:
        """Raises BadInput, also when the package is not installed."""
        n, ending = parse_task(task, "spread", "|-continuous")
        self._continuous = bool(ending)
        spec = Particles(n, "continuous" if ending else "discrete").spec
        self._package = _opened(n, spec.horizon, self._continuous)
        self._world = self._package.unwrapped.world
        super().__init__(task, spec)
        self.observation_spaces = {agent: self._package.observation_space(agent) for agent in self.possible_agents}
        force = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_spaces: dict[str, spaces.Space[Any]] = {
            agent: force if self._continuous else self._package.action_space(agent) for agent in self.possible_agents
        }
        self.reset()

    def _begin(self, rng: np.random.Generator) -> None:
        self._package.reset(seed=int(rng.integers(SEEDS)))

    def _move(self, actions: Sequence[Any]) -> Sequence[float]:
        told = [thrusters(action) for action in actions] if self._continuous else [int(action) for action in actions]
        rewards = self._package.step(dict(zip(self.possible_agents, told, strict=True)))[1]
        return [rewards[agent] for agent in self.possible_agents]

    def _arrays(self) -> Arrays:
        agents, landmarks = self._world.agents, self._world.landmarks
        return {
            "positions": np.array([agent.state.p_pos for agent in agents]),
            "velocities": np.array([agent.state.p_vel for agent in agents]),
            "landmarks": np.array([landmark.state.p_pos for landmark in landmarks]),
        }

    def _become(self, arrays: Arrays, t: int) -> None:
        """Between two steps the package holds nothing but these, and the number of steps."""
        self._package.reset()
        self._package.unwrapped.steps = t
        rows = zip(self._world.agents, arrays["positions"], arrays["velocities"], strict=True)
        for agent, position, velocity in rows:
            agent.state.p_pos, agent.state.p_vel = position.copy(), velocity.copy()
        for landmark, position in zip(self._world.landmarks, arrays["landmarks"], strict=True):
            landmark.state.p_pos = position.copy()

    def _observations(self) -> Seen:
        return {agent: self._package.aec_env.observe(agent) for agent in self.possible_agents}

    def close(self) -> None:
        self._package.close()


def thrusters(force: np.ndarray) -> np.ndarray:
    """(2,) from -1 to 1 -> (5,) from 0 to 1, as the package takes it: nothing, left, right, down, up."""
    back, forth = np.maximum(-force, 0), np.maximum(force, 0)
    return np.array([0.0, back[0], forth[0], back[1], forth[1]], np.float32)


def _opened(n: int, horizon: int, continuous: bool) -> Any:
    try:
        from mpe2 import simple_spread_v3
    except ImportError:
        raise BadInput("refork/Particles-v0 needs the package mpe2: pip install 'refork[clinical]'") from None
    return simple_spread_v3.parallel_env(N=n, max_cycles=horizon, continuous_actions=continuous)
