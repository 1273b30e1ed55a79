"""What FQE by tables would have said of other patients of the same kind: refitted to bootstrapped ones.

Unlike an interval over starts alone it has in it how much the model itself depends on who was in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.replay.ope.sums import patient_counts
from refork.trainers.fqe_problem import Problem
from refork.trainers.fqe_regressors import Table

SWEEPS = 30
"""From the values of the log itself: they are near."""


def refitted(
    problem: Problem,
    probabilities: np.ndarray,
    parts: Sequence[np.ndarray],
    learnt: Sequence[np.ndarray],
    tables: Sequence[Table],
    values: Sequence[np.ndarray],
    resamples: int,
    seed: int,
) -> np.ndarray:
    """(resamples,) values of the policy with these `probabilities` (U, A).

    By fold: the episodes that are valued, the transitions that are learnt from, the table, and the values (U,) that it
    came to.
    """
    log = problem.log
    counts = patient_counts(log.patients, seed, resamples)  # (resamples, E)
    starts = problem.keys[problem.first_rows]
    found = np.zeros(resamples)
    for k, times in enumerate(counts):
        for part, steps, table, near in zip(parts, learnt, tables, values, strict=True):
            again = table.weighted(times[log.episode[steps]])
            found[k] += times[part] @ _swept(problem, probabilities, again, steps, near)[starts[part]]
    return found / np.maximum(counts.sum(1), 1)


def _swept(
    problem: Problem, probabilities: np.ndarray, table: Table, steps: np.ndarray, near: np.ndarray
) -> np.ndarray:
    """(U,): values after the horizon's steps from 0, or `SWEEPS` from `near`."""
    rewards, discounts = problem.rewards[steps], problem.discounts[steps]
    following = problem.keys[problem.rows[steps] + 1]
    values = np.zeros_like(near) if problem.horizon else near
    for _ in range(problem.horizon or SWEEPS):
        values = np.einsum("ua,ua->u", probabilities, table.fit(rewards + discounts * values[following]))
    return values
