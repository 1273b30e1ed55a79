"""Importance weights in log space, and what they say about how much of a log speaks of a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.replay.transitions import Transitions

LEAST_ESS, LEAST_SHARE = 30.0, 0.01
"""An effective sample size below the greater of 30 and 1 % of n supports no number."""
MEAN_WEIGHT = (0.8, 1.25)
"""Weights average to 1 where the probabilities are right and the log covers the policy; outside it does not."""
FLOOR = 1e-12
"""Stands for a behaviour probability of 0 of an action that was logged all the same."""


@dataclass(frozen=True)
class Support:
    """What stands beside every estimate that weights episodes."""

    n: int
    """Episodes."""
    ess: float
    """Effective sample size (sum w)^2 / sum w^2; 0: every weight is 0."""
    largest: float
    """Share of the largest weight in their sum."""
    zero: float
    """Share of episodes of weight 0."""
    impossible: int = 0
    """Logged actions that the behaviour policy gives probability 0; counted as `FLOOR`."""
    mean: float = 1.0
    """Mean weight: 1 is expected."""

    @property
    def ess_share(self) -> float:
        return self.ess / self.n if self.n else 0.0

    @property
    def why_not(self) -> str:
        """Why nothing can be said; "" when something can."""
        least = max(LEAST_ESS, LEAST_SHARE * self.n)
        if self.ess < least:
            return f"effective sample size {self.ess:.1f} of {self.n} episodes, at least {least:.0f} are needed"
        if not MEAN_WEIGHT[0] <= self.mean <= MEAN_WEIGHT[1]:
            return f"weights average to {self.mean:.2f}, not 1: the log does not cover the policy"
        return ""

    @property
    def enough(self) -> bool:
        return not self.why_not


def log_ratios(policy: np.ndarray, behaviour: np.ndarray) -> np.ndarray:
    """(N,) probabilities of the logged actions under both -> (N,) log of their ratio; -inf where the policy's is 0."""
    with np.errstate(divide="ignore"):
        top = np.log(np.asarray(policy, np.float64))
    return top - np.log(np.maximum(np.asarray(behaviour, np.float64), FLOOR))


def cumulative(log: Transitions, ratios: np.ndarray) -> np.ndarray:
    """(N,) log ratios -> (E, T): of each episode up to and with each step; an ended episode keeps its last one."""
    return np.cumsum(padded(log, ratios), axis=1)


def padded(log: Transitions, values: np.ndarray) -> np.ndarray:
    """(N,) -> (E, T), float64, 0 after the end of an episode."""
    found = np.zeros((log.episodes, int(log.lengths.max(initial=0))))
    found[np.arange(found.shape[1]) < log.lengths[:, None]] = values
    return found


def support(log: Transitions, policy: np.ndarray, behaviour: np.ndarray) -> Support:
    """Of the weights of whole episodes; `policy` and `behaviour` (N,): probabilities of the logged actions."""
    ratios = log_ratios(policy, behaviour)
    final = cumulative(log, ratios)[:, -1] if len(ratios) else np.zeros(0)
    return of_weights(final, int((np.asarray(behaviour) <= 0).sum()))


def of_weights(logs: np.ndarray, impossible: int = 0) -> Support:
    """(E,) logs of weights."""
    zero = float(np.isneginf(logs).mean()) if len(logs) else 1.0
    if zero == 1:
        return Support(len(logs), 0.0, 0.0, zero, impossible, 0.0)
    top = logs.max()
    scaled = np.exp(logs - top)
    total = scaled.sum()
    with np.errstate(over="ignore"):
        mean = float(total * np.exp(top) / len(logs))
    return Support(len(logs), float(total**2 / (scaled**2).sum()), float(1 / total), zero, impossible, mean)
