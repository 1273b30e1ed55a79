"""What playing graph games leaves to learn from: a batch of whole games as arrays, and how they are asked for.

B games are padded to N sites and M supply nodes; T rounds. Operator 0 is `demand` (moves 0..N-1, N passes), operator 1
`supply` (moves 0..M-1, M passes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from refork.envs.forkable import Outcome, Reward
from refork.envs.topology import Topology


@dataclass(frozen=True)
class ImproveConfig:
    """Search by forking: candidate joint moves are tried in forks that the policy plays on."""

    candidates: int = 16
    """Joint moves tried per decision, the policy's own included."""
    states: float = 0.25
    """Share of the rounds of a batch in which the search is made."""
    margin: float = 0.0
    """Welfare that a candidate must bring beyond the policy's own moves to take their place."""


@dataclass(frozen=True)
class PlayConfig:
    """How games are played for the next update."""

    behaviour: str = "policy"
    """`policy`, or the name of a heuristic (warm start by cloning)."""
    improve: ImproveConfig | None = None
    """Search for better joint moves and give them as `teacher`."""


@dataclass(frozen=True)
class PlayedGames:
    """B whole games, T rounds each; both operators terminate together after the last round."""

    tasks: tuple[str, ...]
    """(B) names of the instances."""
    episode: int
    topology: Topology
    site: np.ndarray
    """(T, B, N, FS), float32: features of sites."""
    node: np.ndarray
    """(T, B, M, FN), float32: features of supply nodes."""
    masks: tuple[np.ndarray, np.ndarray]
    """(T, B, N + 1) and (T, B, M + 1), bool: legal moves; the last one, pass, always is."""
    actions: np.ndarray
    """(T, B, 2), int64."""
    log_probs: np.ndarray
    """(T, B, 2), float32, of the actions under the behaviour policy; 0 where a heuristic played."""
    rewards: np.ndarray
    """(T, B, 2), float64: what the operators learn from (by alignment)."""
    own: np.ndarray
    """(T, B, 2), float64: true payoffs, whatever the alignment."""
    teacher: np.ndarray | None = None
    """(T, B, 2), int64: moves to imitate, -1 where there is none."""
    version: int = 0
    """Version of the weights that acted."""
    behaviour: str = "policy"
    attempts: tuple[int, ...] = ()
    """(B) which game of its instance and episode each one is."""
    noise_seeds: tuple[int, ...] = ()
    """(B) what the demand was drawn with: with the moves, all there is to play a game again."""

    @property
    def outcomes(self) -> list[tuple[str, Outcome]]:
        """Task and welfare of every game."""
        return [(task, Reward(float(value))) for task, value in zip(self.tasks, self.welfare, strict=True)]

    @property
    def welfare(self) -> np.ndarray:
        """(B,): joint payoff over the game."""
        return self.own.sum((0, 2))

    def take(self, games: np.ndarray) -> PlayedGames:
        """Those games (G,), in that order."""
        return replace(
            self,
            tasks=tuple(self.tasks[g] for g in games),
            topology=self.topology.take(games),
            site=self.site[:, games],
            node=self.node[:, games],
            masks=(self.masks[0][:, games], self.masks[1][:, games]),
            actions=self.actions[:, games],
            log_probs=self.log_probs[:, games],
            rewards=self.rewards[:, games],
            own=self.own[:, games],
            teacher=None if self.teacher is None else self.teacher[:, games],
            attempts=tuple(self.attempts[g] for g in games) if self.attempts else (),
            noise_seeds=tuple(self.noise_seeds[g] for g in games) if self.noise_seeds else (),
        )
