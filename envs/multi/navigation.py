"""How to act among particles: each agent drives to a landmark of its own and stops there; and the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
from refork.envs.log_spec import Act
from refork.envs.multi.particles import DAMPING, DIRECTIONS, DT, SENSITIVITY, Actions, Particles
from refork.envs.multi.rollout import Draw, sampling
from refork.envs.multi.skill import SkilledSimulator, aim
from scipy.optimize import linear_sum_assignment
from scipy.stats import truncnorm

SPREAD = 0.1
"""Standard deviation of the forces that a skilled agent applies, before they are kept within bounds."""
COAST = DT / DAMPING
"""Way that is left of a velocity of 1 without further force."""


def goals(observations: np.ndarray, n: int, reach: float) -> np.ndarray:
    """(B, n, 6 n) -> (B, n, 2): where each agent is to go, as seen from it: landmarks drawn to the middle of the field
    by 1 - reach, each to one agent, so that the sum of squared ways is least."""
    positions = observations[:, :, 2:4].astype(np.float64)
    landmarks = observations[:, :, 4 : 4 + 2 * n].reshape(len(positions), n, n, 2) + positions[:, :, None]
    ways = reach * landmarks - positions[:, :, None]  # (B, agent, landmark, 2)
    chosen = np.stack([linear_sum_assignment(cost)[1] for cost in np.square(ways).sum(-1)])
    return np.take_along_axis(ways, chosen[:, :, None, None], 2)[:, :, 0]


def steering(observations: np.ndarray, n: int, reach: float) -> np.ndarray:
    """(B, n, 2): the force after which an agent, coasting, comes to rest at its goal, within [-1, 1].

    Way left after this step and without further force: way - (DT + COAST (1 - DAMPING)) v - COAST DT SENSITIVITY u = 0.
    """
    velocities = observations[:, :, :2].astype(np.float64)
    left = goals(observations, n, reach) - (DT + COAST * (1 - DAMPING)) * velocities
    return np.clip(left / (COAST * DT * SENSITIVITY), -1.0, 1.0)


def nearest_direction(forces: np.ndarray) -> np.ndarray:
    """(..., 2) -> (...): the discrete action closest to that force."""
    return np.square(forces[..., None, :] - DIRECTIONS).sum(-1).argmin(-1)


class Navigation(Particles):
    """The world, and how to act in it (envs/multi/skill.py: SkilledWorld)."""

    def act(self, skill: float) -> Act | None:
        """Discrete: probabilities. Continuous: the rule without its spread, for experts alone."""
        if self.spec.action.kind == "discrete":
            return lambda observations, _allowed: self._probabilities(observations, skill)
        if skill < 1:
            return None
        return lambda observations, _allowed: steering(observations, self.n, 1.0).astype(np.float32)

    def _probabilities(self, observations: np.ndarray, skill: float) -> np.ndarray:
        ruled = np.eye(len(DIRECTIONS))[nearest_direction(steering(observations, self.n, aim(skill)))]
        return skill * ruled + (1 - skill) / len(DIRECTIONS)

    def draw(self, skill: float) -> Draw:
        if self.spec.action.kind == "discrete":
            return sampling(lambda observations, _allowed: self._probabilities(observations, skill), self.spec.action)
        return lambda observations, rng: spread_around(steering(observations, self.n, aim(skill)), skill, rng)


def spread_around(centres: np.ndarray, skill: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(B, n, 2) -> forces drawn, float32, and their joint density (B,): of each agent, skill x a normal distribution
    around its centre cut to [-1, 1] + (1 - skill) x uniform."""
    uniform = rng.uniform(-1, 1, centres.shape)
    skilled = rng.random((*centres.shape[:2], 1)) < skill
    ruled = _around(centres).rvs(centres.shape, random_state=rng)
    forces = np.where(skilled, ruled, uniform).astype(np.float32)
    return forces, force_density(forces, centres, skill).prod(-1)


def force_density(forces: np.ndarray, centres: np.ndarray, skill: float) -> np.ndarray:
    """(B, n): density with which `spread_around` draws the force (B, n, 2) of each agent."""
    inside = np.clip(forces.astype(np.float64), -1.0, 1.0)  # single precision may round past a bound
    return skill * _around(centres).pdf(inside).prod(-1) + (1 - skill) / 4


def _around(centres: np.ndarray) -> Any:
    return truncnorm((-1 - centres) / SPREAD, (1 - centres) / SPREAD, centres, SPREAD)


class ParticlesSimulator(SkilledSimulator):
    """The simulator of cooperative navigation."""

    def __init__(self, n: int = 3, actions: Actions = "discrete") -> None:
        """`n`: agents, and landmarks."""
        super().__init__(Navigation(n, actions))
