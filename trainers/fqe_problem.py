"""A log as fitted Q evaluation sees it: transitions between distinct observations, and what policies do there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from refork.envs.log_spec import Act
from refork.replay.seeding import generator
from refork.replay.transitions import Transitions
from refork.trainers.joint_actions import JointActions

CHUNK = 50_000


@dataclass(frozen=True)
class Problem:
    """U distinct observations: the states, or every row of vectors."""

    log: Transitions
    gamma: float
    horizon: int
    """Steps that the value is of; 0: to the end of the episode."""

    @cached_property
    def actions(self) -> JointActions:
        return JointActions(self.log.spec.action)

    @cached_property
    def by_state(self) -> bool:
        """What distinct observations are: the states, or every row by itself."""
        seen = self.log.spec.observation
        return seen.kind == "states" and not seen.per_agent and self.log.allowed is None

    @cached_property
    def keys(self) -> np.ndarray:
        """(R,), int64: distinct observation of every row."""
        rows = len(self.log.observations)
        return np.asarray(self.log.observations).astype(np.int64) if self.by_state else np.arange(rows)

    @property
    def distinct(self) -> int:
        return self.log.spec.observation.size if self.by_state else len(self.log.observations)

    @cached_property
    def rows(self) -> np.ndarray:
        """(N,): row that each transition was decided on; the next one is what followed."""
        return self.log.rows(np.arange(len(self.log)))

    @cached_property
    def first_rows(self) -> np.ndarray:
        """(E,): row that each episode begins with."""
        return self.log.starts[:-1] + np.arange(self.log.episodes)

    @cached_property
    def discounts(self) -> np.ndarray:
        """(N,): gamma^dt, 0 where the episode terminated."""
        return self.gamma ** np.asarray(self.log.dt, np.float64) * ~np.asarray(self.log.terminated)

    @cached_property
    def rewards(self) -> np.ndarray:
        return np.asarray(self.log.rewards, np.float64)

    @cached_property
    def returns_to_go(self) -> np.ndarray:
        """(N,): discounted return from each transition on, to the end of its episode."""
        found, after = np.zeros(len(self.rewards)), 0.0
        last = np.zeros(len(found), bool)
        last[self.log.starts[1:] - 1] = True
        kept = self.gamma ** np.asarray(self.log.dt, np.float64) * ~last
        for i in range(len(found) - 1, -1, -1):
            after = found[i] = self.rewards[i] + kept[i] * after
        return found

    @cached_property
    def plausible(self) -> tuple[float, float]:
        """The range of returns to go in the log and 0, widened by half to either side."""
        low, high = min(0.0, self.returns_to_go.min()), max(0.0, self.returns_to_go.max())
        return float(low - (high - low) / 2), float(high + (high - low) / 2)

    @cached_property
    def numbers(self) -> np.ndarray:
        """(N,): joint actions, where they can be listed."""
        return self.actions.numbers(self.log.actions)

    @cached_property
    def steps(self) -> np.ndarray:
        """(N,): step of each transition within its episode, from 0."""
        return np.arange(len(self.log)) - np.repeat(self.log.starts[:-1], self.log.lengths)

    @cached_property
    def row_steps(self) -> np.ndarray:
        """(R,): the same of rows."""
        return np.arange(len(self.log.observations)) - np.repeat(self.first_rows, self.log.lengths + 1)

    @cached_property
    def features(self) -> np.ndarray | None:
        """(U, F), float32, standardised over the log; None: of states nothing is known but which they are."""
        log = self.log
        seen = log.state_features if self.log.spec.observation.kind == "states" else log.observations
        if seen is None:
            return None
        flat = np.asarray(seen, np.float32)
        if log.spec.observation.kind == "states" and not self.by_state:
            flat = flat[np.asarray(log.observations)]
        flat = flat.reshape(len(flat), -1)
        spread = flat.std(0, dtype=np.float64)
        return ((flat - flat.mean(0, np.float64)) / np.where(spread > 1e-6, spread, 1.0)).astype(np.float32)

    def probabilities(self, act: Act) -> np.ndarray:
        """(U, count), float32: of joint actions, where they can be listed."""
        return np.concatenate([self.actions.probabilities(p) for p in self._acted(act)]).astype(np.float32)

    def samples(self, act: Act, number: int, seed: int) -> np.ndarray:
        """(U, number, n) actions drawn from a discrete policy; of a continuous one (U, 1, n, d), its action."""
        if self.log.spec.action.kind == "continuous":
            return np.concatenate([a[:, None] for a in self._acted(act)])
        rng, found = generator(seed, "samples"), []
        for probabilities in self._acted(act):
            upto = np.cumsum(probabilities, -1)[:, None]  # (B, 1, n, width)
            drawn = rng.random((len(upto), number, probabilities.shape[1], 1))
            found.append((drawn >= upto[..., :-1]).sum(-1, dtype=np.int16))
        return np.concatenate(found)

    def _acted(self, act: Act) -> list[np.ndarray]:
        if self.by_state:
            return [act(np.arange(self.distinct, dtype=np.int32), None)]
        observations, allowed = self.log.observations, self.log.allowed
        parts = [slice(i, i + CHUNK) for i in range(0, len(observations), CHUNK)]
        return [
            act(np.asarray(observations[part]), None if allowed is None else np.asarray(allowed[part]))
            for part in parts
        ]
