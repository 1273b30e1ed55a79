"""An estimator as sums over episodes: a value that is a sum of ratios of sums, and its bootstrap by patient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 400


@dataclass(frozen=True)
class Sums:
    """The value is sum_t (sum_e numerator[e, t]) / (sum_e weight[e, t])."""

    numerator: np.ndarray
    """(E, T)"""
    weight: np.ndarray
    """(E, T)"""

    def value(self) -> float:
        """NaN where all weights are 0."""
        return float(self._values(np.ones((1, len(self.numerator))))[0])

    def resampled(self, patients: np.ndarray, seed: int = 0, resamples: int = RESAMPLES) -> np.ndarray:
        """(resamples,) values with patients (E,) drawn with replacement; all episodes of a patient come together."""
        known, owner = np.unique(patients, return_inverse=True)
        rng = np.random.default_rng(seed)
        times = rng.multinomial(len(known), np.full(len(known), 1 / len(known)), size=resamples)
        return self._values(times[:, owner].astype(np.float64))

    def _values(self, times: np.ndarray) -> np.ndarray:
        """(B, E) how often each episode counts -> (B,)"""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return ((times @ self.numerator) / (times @ self.weight)).sum(1)


def mean_of(values: np.ndarray) -> Sums:
    """The plain mean of one number an episode, (E,)."""
    return Sums(values[:, None], np.ones((len(values), 1)))


def interval(resampled: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval over those resamples in which the value is defined; NaN when it never is."""
    values = resampled[~np.isnan(resampled)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return float(low), float(high)
