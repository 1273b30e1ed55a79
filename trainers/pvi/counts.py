"""What followed each decision of a log of states, summed by state and action: all that planning needs of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.replay.transitions import Transitions
from scipy.sparse import csr_array


@dataclass(frozen=True)
class Counts:
    """Pairs are numbered s * A + a."""

    states: int
    actions: int
    seen: np.ndarray
    """(S, A), float64: decisions."""
    rewards: np.ndarray
    """(S, A): sums of rewards."""
    leads: csr_array
    """(S A, S): sums of gamma^dt over the transitions to each state, 0 where the episode terminated."""

    def backed_up(self, values: np.ndarray) -> np.ndarray:
        """(S,) -> (S, A): sums over decisions of r + gamma^dt V(s')."""
        return self.rewards + (self.leads @ values).reshape(self.seen.shape)


def count(log: Transitions, transitions: np.ndarray, gamma: float) -> Counts:
    """Of these transitions."""
    states, actions = log.spec.observation.size, log.spec.action.width
    rows = log.rows(transitions)
    pairs = np.asarray(log.observations[rows], np.int64) * actions + log.actions[transitions, 0]
    discounts = gamma ** np.asarray(log.dt[transitions], np.float64) * ~log.terminated[transitions]
    size = states * actions
    rewards = np.bincount(pairs, np.asarray(log.rewards[transitions], np.float64), size)
    leads = csr_array((discounts, (pairs, log.observations[rows + 1])), (size, states))
    leads.sum_duplicates()
    seen = np.bincount(pairs, minlength=size).astype(np.float64)
    return Counts(states, actions, seen.reshape(states, actions), rewards.reshape(states, actions), leads)


def shrunk_values(counts: Counts, values: np.ndarray, shrinkage: float, prior: float) -> np.ndarray:
    """(S,) -> Q (S, A): posterior means of r + gamma^dt V(s').

    An action's mean is drawn to its state's mean as by `shrinkage` further decisions, that to the log's as by `prior`.
    What was never seen has the mean it is drawn to.
    """
    sums = counts.backed_up(values)
    overall = sums.sum() / counts.seen.sum()
    of_state = _mean(sums.sum(1) + prior * overall, counts.seen.sum(1) + prior, overall)[:, None]
    return _mean(sums + shrinkage * of_state, counts.seen + shrinkage, of_state)


def _mean(sums: np.ndarray, weights: np.ndarray, otherwise: np.ndarray | float) -> np.ndarray:
    return np.where(weights > 0, sums / np.where(weights > 0, weights, 1.0), otherwise)
