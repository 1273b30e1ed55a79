"""Cooperative navigation of the multi-agent particle environments: n agents are to cover n landmarks without colliding.

The equations are those of the package `mpe2` 1.1.1 (`simple_spread_v3`, local ratio .5, 25 steps), for many episodes at
once; a test plays both side by side. The team earns the mean of what the package pays its agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

DT, DAMPING, SENSITIVITY = 0.1, 0.25, 5.0
CONTACT_FORCE, CONTACT_MARGIN, TOUCHING = 1e2, 1e-3, 0.3
"""Repulsion of two agents, and the distance of their centres when they touch."""
LOCAL_RATIO = 0.5
DIRECTIONS = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
"""Of the discrete actions, in the package's order."""
MOST = 10
Actions = Literal["discrete", "continuous"]


@dataclass(frozen=True)
class ParticleState:
    """B episodes; each (B, n, 2), float64."""

    positions: np.ndarray
    velocities: np.ndarray
    landmarks: np.ndarray


class Particles:
    """The world (envs/multi/rollout.py). Continuous actions are the force in two dimensions, each from -1 to 1."""

    def __init__(self, n: int, actions: Actions) -> None:
        """Raises BadInput unless 2 <= n <= 10 and `actions` is one of the two."""
        where = "of refork/Particles-v0: expected"
        if not isinstance(n, int) or not 2 <= n <= MOST:
            raise BadInput(f"n={n!r} {where} a whole number of agents from 2 to {MOST}")
        if actions not in ("discrete", "continuous"):
            raise BadInput(f"actions={actions!r} {where} discrete or continuous")
        self.n = n
        agents = tuple(f"agent_{i}" for i in range(n))
        names = feature_names(n)
        self.spec = LogSpec(
            "refork/Particles-v0",
            ObservationSpec("vector", len(names), names, per_agent=True),
            ActionSpec("discrete", (len(DIRECTIONS),) * n, agents)
            if actions == "discrete"
            else ActionSpec("continuous", (2,) * n, agents, low=(-1.0, -1.0), high=(1.0, 1.0)),
            reward="mean over agents: half of minus the distances of landmarks to the nearest agent, half of minus "
            "the collisions",
            horizon=25,
        )

    def begin(self, episodes: int, rng: np.random.Generator) -> ParticleState:
        positions, landmarks = rng.uniform(-1, 1, (2, episodes, self.n, 2))
        return ParticleState(positions, np.zeros_like(positions), landmarks)

    def observe(self, state: ParticleState) -> np.ndarray:
        """(B, n, 6 n): own velocity and position, landmarks and others as seen from there, silent channels."""
        own = state.positions[:, :, None]  # (B, n, 1, 2)
        landmarks = state.landmarks[:, None] - own  # (B, n, n, 2)
        others = (state.positions[:, None] - own)[:, ~np.eye(self.n, dtype=bool)]  # (B, n (n - 1), 2)
        shape = (len(own), self.n, -1)
        parts = [state.velocities, state.positions, landmarks.reshape(shape), others.reshape(shape)]
        silent = np.zeros((len(own), self.n, 2 * (self.n - 1)))
        return np.concatenate([*parts, silent], -1).astype(np.float32)

    def step(self, state: ParticleState, actions: np.ndarray) -> tuple[ParticleState, np.ndarray]:
        pushed = DIRECTIONS[actions] if self.spec.action.kind == "discrete" else actions
        force = pushed * SENSITIVITY + repulsion(state.positions)
        positions = state.positions + state.velocities * DT
        velocities = state.velocities * (1 - DAMPING) + force * DT
        moved = ParticleState(positions, velocities, state.landmarks)
        return moved, self.reward(moved)

    def reward(self, state: ParticleState) -> np.ndarray:
        """(B,)"""
        far = np.linalg.norm(state.positions[:, :, None] - state.landmarks[:, None], axis=-1)  # (B, agent, landmark)
        touching = (_distances(state.positions) < TOUCHING).sum((1, 2)) - self.n  # each pair counts for both
        return -(1 - LOCAL_RATIO) * far.min(1).sum(1) - LOCAL_RATIO * touching / self.n


def feature_names(n: int) -> tuple[str, ...]:
    """Of what each agent sees."""
    parts = [*(f"landmark_{k}" for k in range(n)), *(f"other_{k}" for k in range(n - 1))]
    silent = [f"channel_{k}" for k in range(2 * (n - 1))]
    return ("velocity_x", "velocity_y", "x", "y", *(f"{part}_{axis}" for part in parts for axis in "xy"), *silent)


def repulsion(positions: np.ndarray) -> np.ndarray:
    """(B, n, 2): force on each agent from all others, soft within a margin of touching."""
    apart = positions[:, :, None] - positions[:, None]  # (B, n, n, 2)
    far = _distances(positions) + np.eye(positions.shape[1])  # none from itself: its `apart` is 0
    depth = np.logaddexp(0, -(far - TOUCHING) / CONTACT_MARGIN) * CONTACT_MARGIN
    return (CONTACT_FORCE * apart / far[..., None] * depth[..., None]).sum(2)


def _distances(positions: np.ndarray) -> np.ndarray:
    """(B, n, 2) -> (B, n, n)"""
    return np.linalg.norm(positions[:, :, None] - positions[:, None], axis=-1)
