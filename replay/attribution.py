"""Which decision lost a rollout: a search by going back, that learns from every continuation where to go back to next.

Before the decisive decision the policy still succeeds at some rate from the states on the way, after it at a lower one,
near 0. Where that change is, is a change point under noisy answers; every answer (a continuation from one of the
states, that succeeded or not) moves the belief, and the state asked next is the one whose answer tells most. That is
divide and conquer when answers are certain (log2 of the length many), and stays right when they are not (probabilistic
bisection: Horstein 1963; the change-point model and the choice by mutual information are this project's). Pure, numpy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

BEFORE = (1.0, 1.0)
"""Beta prior of the success rate from states before the decisive decision: anything."""
AFTER = (0.25, 10.0)
"""From states after it: near 0, and so many failures in a row speak for it."""
NEVER = 0.1
"""Prior probability that there is none: the policy does not succeed from the start either."""
HOPELESS = (0.25, 100.0)
"""Beta prior of its success rate then, from every state: a rate of some per cent is low, but no sign of that."""


@dataclass(frozen=True)
class Answers:
    """Continuations from each state of a rollout of T decisions, the start first: integer arrays (T,)."""

    successes: np.ndarray
    failures: np.ndarray

    @classmethod
    def none(cls, steps: int) -> Answers:
        """Nothing was asked yet. Raises ValueError for a rollout without decisions."""
        if steps < 1:
            raise ValueError("a rollout without decisions has no decisive one")
        return cls(np.zeros(steps, np.int64), np.zeros(steps, np.int64))

    def add(self, step: int, success: bool) -> Answers:
        """With one more continuation from the state before decision `step`."""
        one = np.arange(len(self.successes)) == step
        return Answers(self.successes + (one & success), self.failures + (one & (not success)))

    @property
    def asked(self) -> int:
        """Continuations in all."""
        return int(self.successes.sum() + self.failures.sum())


def posterior(answers: Answers) -> np.ndarray:
    """(T + 1,), sums to 1: belief that decision 0 ... T - 1 is the decisive one, and last, that none is."""
    (own_wins, own_losses), (later_wins, later_losses) = _split(answers)
    steps = len(answers.successes)
    evidence = _marginal(own_wins, own_losses, *BEFORE) + _marginal(later_wins, later_losses, *_later_rates(steps))
    prior = np.log(np.append(np.full(steps, (1 - NEVER) / steps), NEVER))
    weights = np.exp(evidence + prior - (evidence + prior).max())
    return weights / weights.sum()


def next_state(answers: Answers) -> int:
    """The state whose next continuation tells most about which decision it is (mutual information); of equals the
    latest, which is the cheapest to play on from."""
    (own_wins, own_losses), (later_wins, later_losses) = _split(answers)
    before = (BEFORE[0] + own_wins) / (sum(BEFORE) + own_wins + own_losses)
    steps = len(answers.successes)
    a, b = _later_rates(steps)
    after = (a + later_wins) / (a + b + later_wins + later_losses)
    decisive = np.append(np.arange(steps), -1)
    success = np.where(np.arange(steps)[:, None] <= decisive, before, after)  # (state, hypothesis)
    belief = posterior(answers)
    told = _entropy(success @ belief) - _entropy(success) @ belief
    return int(steps - 1 - np.argmax(np.round(told[::-1], 12)))


def _split(answers: Answers) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Successes and failures up to the decisive decision and after it, for every hypothesis, (T + 1,) each."""
    found = []
    for counts in (answers.successes, answers.failures):
        upto = np.append(np.cumsum(counts), 0)
        found.append((upto, counts.sum() - upto))
    (own_wins, later_wins), (own_losses, later_losses) = found
    return (own_wins, own_losses), (later_wins, later_losses)


def _later_rates(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Beta priors of the rate after the decisive decision, for every hypothesis, (T + 1,) both."""
    a, b = (np.append(np.full(steps, one), other) for one, other in zip(AFTER, HOPELESS, strict=True))
    return a, b


def _marginal(wins: np.ndarray, losses: np.ndarray, a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Log-probability of such answers in some order when the rate is Beta(a, b)."""
    return _log_beta(a + wins, b + losses) - _log_beta(a, b)


def _log_beta(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    gammas = np.vectorize(math.lgamma, otypes=[np.float64])
    return np.asarray(gammas(a) + gammas(b) - gammas(a + b))


def _entropy(p: np.ndarray) -> np.ndarray:
    """Of Bernoulli(p), 0 < p < 1, nats."""
    return np.asarray(-p * np.log(p) - (1 - p) * np.log1p(-p))
