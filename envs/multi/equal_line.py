"""Equal Line, the scaling toy of CFCQL (NeurIPS 2023): n agents on a line are to stand apart, equally.

All agents see all positions, or each its place among its neighbours (not in the paper: it takes far less data to learn
from). The team earns 10 (m_t - m_{t-1}) (n - 1) / L, m the least distance of any two; the first
step counts from 0, so that a return is 10 m_T (n - 1) / L: 10 for equal spacing, whatever the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogSpec, ObservationSpec
from refork.envs.multi.rollout import Draw, sampling
from refork.envs.multi.skill import SkilledSimulator, aim

MOVES = np.array([-1, -0.5, -0.1, -0.05, -0.01, 0, 0.01, 0.05, 0.1, 0.5, 1])
START = 2.0
"""Agents begin uniform in [0, START]."""
MOST = 64
NEIGHBOURS = ("position", "rank", "gap_below", "gap_above", "least_gap")
"""What an agent sees of itself: shares of the line, of all agents, and of equal spacing. The ends have gaps too."""
Observe = Literal["positions", "neighbours"]


@dataclass(frozen=True)
class LineState:
    """B episodes."""

    positions: np.ndarray
    """(B, n), float64, in [0, L]."""
    counted: np.ndarray
    """(B,): the least distance that has been paid for."""


class Line:
    """The world (envs/multi/rollout.py)."""

    def __init__(self, n: int, observe: Observe = "positions") -> None:
        """Raises BadInput unless 2 <= n <= 64 and `observe` is one of the two."""
        if not isinstance(n, int) or not 2 <= n <= MOST:
            raise BadInput(f"n={n!r} of refork/EqualLine-v0: expected a whole number of agents from 2 to {MOST}")
        if observe not in ("positions", "neighbours"):
            raise BadInput(f"observe={observe!r} of refork/EqualLine-v0: expected positions or neighbours")
        self.n, self.length, self.per_agent = n, float(max(10, 2 * n)), observe == "neighbours"
        agents = tuple(f"agent_{i}" for i in range(n))
        self.spec = LogSpec(
            "refork/EqualLine-v0",
            ObservationSpec("vector", len(NEIGHBOURS), NEIGHBOURS, per_agent=True)
            if self.per_agent
            else ObservationSpec("vector", n, tuple(f"position_{i}" for i in range(n))),
            ActionSpec("discrete", (len(MOVES),) * n, agents),
            reward="growth of the least distance, as a tenth of what equal spacing has",
            horizon=50,
        )

    def begin(self, episodes: int, rng: np.random.Generator) -> LineState:
        return LineState(rng.random((episodes, self.n)) * START, np.zeros(episodes))

    def observe(self, state: LineState) -> np.ndarray:
        """(B, n): positions as shares of the line; or (B, n, 5), NEIGHBOURS."""
        share = state.positions / self.length
        if not self.per_agent:
            return share.astype(np.float32)
        rank = ranks(state.positions)
        ordered = np.pad(np.sort(share, -1), ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
        gaps = np.diff(ordered, axis=-1) * (self.n - 1)  # (B, n + 1): from end to end
        least = np.broadcast_to(gaps[:, 1:-1].min(-1, keepdims=True), share.shape)
        below, above = (np.take_along_axis(gaps, rank + side, -1) for side in (0, 1))
        return np.stack([share, rank / (self.n - 1), below, above, least], -1).astype(np.float32)

    def step(self, state: LineState, actions: np.ndarray) -> tuple[LineState, np.ndarray]:
        positions = np.clip(state.positions + MOVES[actions], 0.0, self.length)
        least = np.diff(np.sort(positions, -1), axis=-1).min(-1)
        return LineState(positions, least), 10 * (least - state.counted) * (self.n - 1) / self.length

    def rule(self, observations: np.ndarray, spread: float) -> np.ndarray:
        """(B, n) or (B, n, 5) -> (B, n): to slots spread over that share of the line, in the order of the agents, the
        move that ends nearest to the slot."""
        seen = observations[..., 0] if self.per_agent else observations
        positions = seen.astype(np.float64) * self.length
        slots = ranks(positions) * spread * self.length / (self.n - 1)
        ends = np.clip(positions[..., None] + MOVES, 0.0, self.length)  # (B, n, 11)
        return np.abs(ends - slots[..., None]).argmin(-1)

    def act(self, skill: float) -> Act:
        """Probabilities (B, n, 11)."""

        def act(observations: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
            ruled = np.eye(len(MOVES))[self.rule(observations, aim(skill))]  # (B, n) -> (B, n, 11)
            return skill * ruled + (1 - skill) / len(MOVES)

        return act

    def draw(self, skill: float) -> Draw:
        return sampling(self.act(skill), self.spec.action)


def ranks(positions: np.ndarray) -> np.ndarray:
    """(B, n) -> (B, n): 0 for the lowest; of equal ones the first agent is the lower."""
    return np.argsort(np.argsort(positions, -1, kind="stable"), -1, kind="stable")


class EqualLine(SkilledSimulator):
    """The simulator."""

    def __init__(self, n: int = 5, observe: Observe = "positions") -> None:
        """`n`: agents; `observe`: what each of them sees."""
        super().__init__(Line(n, observe))
