"""The estimators. Each takes a log, its discount, and the log ratios (N,) of the logged actions (`weights.log_ratios`).

Rewards count from the start of an episode, discounted by gamma^(time since then). Rewards after a cut are unknown:
those that weight returns leave them out, the doubly robust ones put the model's value in their place unless the cut is
the horizon itself.
"""

from __future__ import annotations

import numpy as np
from refork.replay.ope.sums import Sums, mean_of
from refork.replay.ope.weights import cumulative, padded
from refork.replay.transitions import Transitions


def observed(log: Transitions, gamma: float) -> Sums:
    """Mean return of the log: of who acted, not of any other policy."""
    return mean_of(log.returns(gamma))


def importance(log: Transitions, gamma: float, ratios: np.ndarray) -> Sums:
    """IS: mean of w G. Unbounded; here to show how it fails (Precup et al. 2000)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return mean_of(np.exp(cumulative(log, ratios)[:, -1]) * log.returns(gamma))


def weighted_importance(log: Transitions, gamma: float, ratios: np.ndarray) -> Sums:
    """WIS: sum w G / sum w (Precup et al. 2000)."""
    weights = _scaled(cumulative(log, ratios)[:, -1:])
    return Sums(weights * log.returns(gamma)[:, None], weights)


def per_decision(log: Transitions, gamma: float, ratios: np.ndarray) -> Sums:
    """Per-decision WIS: sum_t of sum_e w_t gamma^t r_t / sum_e w_t, w_t up to step t (Thomas 2015, CWPDIS)."""
    weights = _scaled(cumulative(log, ratios))
    return Sums(weights * _discounted(log, gamma, log.rewards), weights)


def direct(starts: np.ndarray) -> Sums:
    """The model's values at the first rows (E,): FQE."""
    return mean_of(starts)


def doubly_robust(log: Transitions, gamma: float, ratios: np.ndarray, q: np.ndarray, v: np.ndarray) -> Sums:
    """DR: mean of sum_t gamma^t [w_t (r_t - Q_t) + w_(t-1) V_t] (arXiv 1511.03722). q (N,), v (R,) of the policy."""
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(cumulative(log, ratios))
        residual, value, tail = _terms(log, gamma, q, v)
        return mean_of((weights * residual + _before(weights) * value).sum(1) + weights[:, -1] * tail)


def weighted_doubly_robust(log: Transitions, gamma: float, ratios: np.ndarray, q: np.ndarray, v: np.ndarray) -> Sums:
    """WDR: the same with the weights of each step normalised over episodes (arXiv 1604.00923)."""
    weights = _scaled(cumulative(log, ratios))
    residual, value, tail = _terms(log, gamma, q, v)
    before = _before(weights)
    # (E, T), (E, T), (E, 1) -> (E, 2 T + 1)
    numerator = np.concatenate([weights * residual, before * value, weights[:, -1:] * tail[:, None]], 1)
    return Sums(numerator, np.concatenate([weights, before, weights[:, -1:]], 1))


def _terms(log: Transitions, gamma: float, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Discounted r - Q (E, T) and V (E, T), and (E,) V of what followed a cut before the horizon."""
    rows = log.rows(np.arange(len(log)))
    last = log.starts[1:] - 1
    cut = ~np.asarray(log.terminated[last]) & ((log.lengths < log.spec.horizon) | (log.spec.horizon == 0))
    elapsed = log.elapsed[last] + log.dt[last]
    tail = np.where(cut, gamma**elapsed * v[rows[last] + 1], 0.0)
    return _discounted(log, gamma, log.rewards - q), _discounted(log, gamma, v[rows]), tail


def _discounted(log: Transitions, gamma: float, values: np.ndarray) -> np.ndarray:
    """(N,) -> (E, T)"""
    return padded(log, gamma**log.elapsed * values)


def _before(weights: np.ndarray) -> np.ndarray:
    """(E, T): weights before each step, 1 before the first. Scaled ones begin at any constant: it cancels."""
    return np.concatenate([np.ones((len(weights), 1)), weights[:, :-1]], 1)


def _scaled(logs: np.ndarray) -> np.ndarray:
    """Weights from their logs, each column divided by its largest: ratios of sums stay as they are."""
    top = logs.max(0, initial=-np.inf)
    return np.exp(logs - np.where(np.isfinite(top), top, 0.0))
