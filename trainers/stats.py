"""Statistics of results: unbiased pass@k, interquartile mean, percentile bootstrap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

Statistic = Callable[[np.ndarray], np.ndarray]
"""(..., n) -> (...)"""


@dataclass(frozen=True)
class Interval:
    """A point estimate and its confidence interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def pass_at_k(attempts: int, resolved: int, k: int) -> float:
    """Chance that one of k attempts drawn without replacement is among the `resolved` ones (arXiv 2107.03374, eq. 1).

    Raises ValueError unless 1 <= k <= attempts and 0 <= resolved <= attempts.
    """
    if not 1 <= k <= attempts or not 0 <= resolved <= attempts:
        raise ValueError(f"pass@{k} of {resolved} resolved in {attempts} attempts is not defined")
    return 1.0 - comb(attempts - resolved, k) / comb(attempts, k)


def mean(values: np.ndarray) -> np.ndarray:
    """Mean over the last axis."""
    return np.asarray(values, np.float64).mean(-1)


def iqm(values: np.ndarray) -> np.ndarray:
    """Interquartile mean over the last axis: the middle half, values at its edges by their part (arXiv 2108.13264)."""
    ordered = np.sort(np.asarray(values, np.float64), -1)
    n = ordered.shape[-1]
    left, right = np.arange(n), np.arange(1, n + 1)
    weights = np.clip(np.minimum(right, 0.75 * n) - np.maximum(left, 0.25 * n), 0.0, 1.0)
    return ordered @ weights / weights.sum()


def bootstrap(
    values: Sequence[float] | np.ndarray,
    *,
    statistic: Statistic = mean,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap over independent units (tasks, seeds), (n,). Raises ValueError for none or for NaN.

    For attempts within tasks, pass one mean per task: tasks are the units that were sampled.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ValueError(f"a bootstrap needs a non-empty row of finite numbers, got shape {array.shape}")
    return stratified_bootstrap([array], statistic=statistic, seed=seed, resamples=resamples, level=level)


def stratified_bootstrap(
    strata: Sequence[Sequence[float] | np.ndarray],
    *,
    statistic: Statistic = iqm,
    seed: int = 0,
    resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap of a statistic of all units together, drawn again within each stratum (arXiv 2108.13264).

    `strata`: one row of independent units each (games of one cell). Raises ValueError as `bootstrap` does.
    """
    arrays = [np.asarray(values, np.float64) for values in strata]
    if not arrays or any(a.ndim != 1 or a.size == 0 or not np.isfinite(a).all() for a in arrays):
        raise ValueError("a stratified bootstrap needs non-empty rows of finite numbers, one a stratum")
    rng = np.random.default_rng(seed)
    drawn = np.concatenate([a[rng.integers(a.size, size=(resamples, a.size))] for a in arrays], 1)
    low, high = np.quantile(statistic(drawn), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(np.concatenate(arrays))), float(low), float(high))


def crossed_bootstrap(
    table: np.ndarray, *, statistic: Statistic = iqm, seed: int = 0, resamples: int = 4_000, level: float = 0.95
) -> Interval:
    """Percentile bootstrap of a statistic of all entries of `table` (seeds, instances), both drawn again together.

    Raises ValueError for an empty table or for NaN.
    """
    table = np.asarray(table, np.float64)
    if table.ndim != 2 or table.size == 0 or not np.isfinite(table).all():
        raise ValueError(f"a crossed bootstrap needs a table of finite numbers, got shape {table.shape}")
    rng = np.random.default_rng(seed)
    rows = rng.integers(table.shape[0], size=(resamples, table.shape[0], 1))
    columns = rng.integers(table.shape[1], size=(resamples, 1, table.shape[1]))
    values = statistic(table[rows, columns].reshape(resamples, -1))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(table.ravel())), float(low), float(high))
