"""Policies that logs are made with, as tables of probabilities (states, actions): softened, confounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.forkable import BadInput


def softened(policy: np.ndarray, share: float) -> np.ndarray:
    """(..., A) -> (..., A): each action keeps 1 - `share` of its probability, the rest goes evenly to the others.

    Of a policy that always takes one action: that one with 1 - share, each other with share / (A - 1).
    """
    if not 0 <= share <= 1:
        raise BadInput(f"softness: expected a share from 0 to 1, got {share}")
    return (1 - share) * policy + share * (1 - policy) / (policy.shape[-1] - 1)


def marginal(policy: np.ndarray, weights: np.ndarray, shown: np.ndarray, count: int) -> np.ndarray:
    """The policy as seen by who cannot tell some states apart: (S, A) -> (count, A).

    `weights` (S,): how often each state is visited; `shown` (S,): what is seen of it, from 0 to count - 1. What is
    never visited gets the plain mean over the states that show it.
    """
    total = _summed(weights[:, None], shown, count)
    even = _summed(np.ones((len(shown), 1)), shown, count)
    visited = _summed(weights[:, None] * policy, shown, count) / np.where(total > 0, total, 1)
    return np.where(total > 0, visited, _summed(policy, shown, count) / np.maximum(even, 1))


def _summed(values: np.ndarray, shown: np.ndarray, count: int) -> np.ndarray:
    """(S, K) -> (count, K)"""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, shown, values)
    return sums


@dataclass(frozen=True)
class Confounded:
    """A policy that depends on a hidden yes or no; each (..., A)."""

    without: np.ndarray
    having: np.ndarray


def confounded(base: np.ndarray, favoured: np.ndarray, strength: float, share: np.ndarray) -> Confounded:
    """`base` (..., A) split so that those who have the hidden trait get a `favoured` (A,) action more often.

    The odds of a favoured action are `strength` times as high for those who have it as for those without (the Gamma
    of marginal sensitivity models, Tan 2006); among the favoured actions, and among the others, shares stay as in
    `base`. `share` (...): who has it. The average over both is `base` again, exactly. `strength` 1 changes nothing,
    and below 1 those who have it get favoured actions less often.
    """
    if not 0 < strength < np.inf:
        raise BadInput(f"strength: the odds ratio has to be above 0, got {strength}")
    given = base[..., favoured].sum(-1)
    without, having = _split(given, share, strength)
    return Confounded(_regrouped(base, favoured, given, without), _regrouped(base, favoured, given, having))


def _split(given: np.ndarray, share: np.ndarray, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities p, q with (1 - share) p + share q = given and odds(q) = strength odds(p).

    With k = strength - 1 this is k (1 - share) p^2 + (1 + k (share - given)) p - given = 0, whose root in [0, 1] is
    2 given / (b + sqrt(b^2 + 4 k (1 - share) given)), which is also right for k = 0.
    """
    k = strength - 1
    b = 1 + k * (share - given)
    root = np.sqrt(np.maximum(b * b + 4 * k * (1 - share) * given, 0))
    p = np.clip(2 * given / np.where(b + root > 0, b + root, 1), 0, 1)
    return p, strength * p / (1 + k * p)


def _regrouped(base: np.ndarray, favoured: np.ndarray, given: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """`base` with probability `wanted` in place of `given` on the favoured actions."""
    ups = np.where(given > 0, wanted / np.where(given > 0, given, 1), 1)
    downs = np.where(given < 1, (1 - wanted) / np.where(given < 1, 1 - given, 1), 1)
    return base * np.where(favoured, ups[..., None], downs[..., None])
