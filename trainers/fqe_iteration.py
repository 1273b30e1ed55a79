"""Fitted Q evaluation by iteration: regress r + gamma V_k(s') again and again (arXiv 1903.08738, algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.trainers.fqe_problem import Problem
from refork.trainers.fqe_regressors import Regressor

MOST = 2000
TOLERANCE = 1e-4
"""Of the range of returns: changes below it are convergence."""


@dataclass(frozen=True)
class Evaluated:
    """What one policy was found to be worth on a log."""

    q: np.ndarray
    """(N,), float64: of the logged action, with what is left of the horizon."""
    v: np.ndarray
    """(R,): of every row under the policy; 0 after a terminal transition."""
    curve: tuple[tuple[int, float], ...]
    """Iteration (or gradient step), and the mean value at the starts of the episodes then."""
    converged: bool
    values: np.ndarray | None = None
    """(U,): of the distinct observations, where the method lists them."""


def iterate(problem: Problem, probabilities: np.ndarray, regressor: Regressor, transitions: np.ndarray) -> Evaluated:
    """Evaluate the policy with these `probabilities` (U, A), learning from `transitions` only.

    From Q_0 = 0 with a horizon exactly so many times, which gives the value of so many steps; otherwise until nothing
    changes.
    """
    log, horizon = problem.log, problem.horizon
    values = np.zeros(problem.distinct)
    rewards, discounts = problem.rewards[transitions], problem.discounts[transitions]
    following = problem.keys[problem.rows[transitions] + 1]
    starts = problem.keys[problem.first_rows]
    here = problem.keys[problem.rows]
    q, v = np.zeros(len(log)), np.zeros(len(log.observations))
    curve, small = [], TOLERANCE * max(np.ptp(log.returns(problem.gamma)), 1e-12)
    change = np.inf
    for k in range(1, (horizon or MOST) + 1):
        table = regressor.fit(rewards + discounts * values[following])
        renewed = (probabilities * table).sum(1)
        change, values = float(np.abs(renewed - values).max()), renewed
        curve.append((k, float(values[starts].mean())))
        if horizon:
            now, seen = horizon - problem.steps == k, horizon - problem.row_steps == k
            q[now], v[seen] = table[here[now], problem.numbers[now]], values[problem.keys[seen]]
        if not np.isfinite(change) or (change < small and not horizon):
            break
    if not horizon and np.isfinite(change):
        q, v = table[here, problem.numbers], values[problem.keys]
    v[problem.rows[np.asarray(log.terminated)] + 1] = 0.0
    return Evaluated(q, v, tuple(curve), bool(np.isfinite(change) and (horizon or change < small)), values)
