"""What acts in a rollout: a distribution over a masked discrete set of actions, sampled with a generator handed in."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from refork.envs.forkable import Obs


class Policy(Protocol):
    """Stateless between calls: everything it knows is in the observation."""

    def probabilities(self, observation: Obs) -> np.ndarray:
        """pi(. | observation), (num_actions,), float64, sums to 1, 0 where the mask is False."""


def sample(probabilities: np.ndarray, rng: np.random.Generator) -> int:
    """One index drawn from `probabilities` (n,); never one of probability 0."""
    cumulative = probabilities.cumsum()
    index = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
    return min(index, int(probabilities.nonzero()[0][-1]))


def entropy(probabilities: np.ndarray) -> float:
    """Entropy in nats."""
    positive = probabilities[probabilities > 0]
    return -float(positive @ np.log(positive))


def greedy(probabilities: np.ndarray) -> int:
    """The most probable index, the lowest of equals."""
    return int(probabilities.argmax())
