"""Equal Line, the scaling toy of CFCQL (NeurIPS 2023): n agents on a line are to stand apart, equally.

All agents see all positions. The team earns 10 (m_t - m_{t-1}) (n - 1) / L, m the least distance of any two; the first
step counts from 0, so that a return is 10 m_T (n - 1) / L: 10 for equal spacing, whatever the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogSpec, ObservationSpec
from refork.envs.multi.rollout import Draw, sample
from refork.envs.multi.skill import SkilledSimulator, aim

MOVES = np.array([-1, -0.5, -0.1, -0.05, -0.01, 0, 0.01, 0.05, 0.1, 0.5, 1])
START = 2.0
"""Agents begin uniform in [0, START]."""
MOST = 64


@dataclass(frozen=True)
class LineState:
    """B episodes."""

    positions: np.ndarray
    """(B, n), float64, in [0, L]."""
    counted: np.ndarray
    """(B,): the least distance that has been paid for."""


class Line:
    """The world (envs/multi/rollout.py)."""

    def __init__(self, n: int) -> None:
        """Raises BadInput unless 2 <= n <= 64."""
        if not isinstance(n, int) or not 2 <= n <= MOST:
            raise BadInput(f"n={n!r} of refork/EqualLine-v0: expected a whole number of agents from 2 to {MOST}")
        self.n, self.length = n, float(max(10, 2 * n))
        agents = tuple(f"agent_{i}" for i in range(n))
        self.spec = LogSpec(
            "refork/EqualLine-v0",
            ObservationSpec("vector", n, tuple(f"position_{i}" for i in range(n))),
            ActionSpec("discrete", (len(MOVES),) * n, agents),
            reward="growth of the least distance, as a tenth of what equal spacing has",
            horizon=50,
        )

    def begin(self, episodes: int, rng: np.random.Generator) -> LineState:
        return LineState(rng.random((episodes, self.n)) * START, np.zeros(episodes))

    def observe(self, state: LineState) -> np.ndarray:
        """(B, n): positions as shares of the line."""
        return (state.positions / self.length).astype(np.float32)

    def step(self, state: LineState, actions: np.ndarray) -> tuple[LineState, np.ndarray]:
        positions = np.clip(state.positions + MOVES[actions], 0.0, self.length)
        least = np.diff(np.sort(positions, -1), axis=-1).min(-1)
        return LineState(positions, least), 10 * (least - state.counted) * (self.n - 1) / self.length

    def rule(self, observations: np.ndarray, spread: float) -> np.ndarray:
        """(B, n) -> (B, n): to slots spread over that share of the line, in the order of the agents, the move that
        ends nearest to the slot."""
        positions = observations.astype(np.float64) * self.length
        rank = np.argsort(np.argsort(positions, -1, kind="stable"), -1)
        slots = rank * spread * self.length / (self.n - 1)
        ends = np.clip(positions[..., None] + MOVES, 0.0, self.length)  # (B, n, 11)
        return np.abs(ends - slots[..., None]).argmin(-1)

    def act(self, skill: float) -> Act:
        """Probabilities (B, n, 11)."""

        def act(observations: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
            ruled = np.eye(len(MOVES))[self.rule(observations, aim(skill))]  # (B, n) -> (B, n, 11)
            return skill * ruled + (1 - skill) / len(MOVES)

        return act

    def draw(self, skill: float) -> Draw:
        act = self.act(skill)
        return lambda observations, rng: sample(act(observations, None), rng)


class EqualLine(SkilledSimulator):
    """The simulator."""

    def __init__(self, n: int = 5) -> None:
        """`n`: agents."""
        super().__init__(Line(n))
