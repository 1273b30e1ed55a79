"""An estimator as sums over episodes: a value that is a sum of ratios of sums, and its bootstrap by patient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 200


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
        return self._values(patient_counts(patients, seed, resamples))

    def _values(self, times: np.ndarray) -> np.ndarray:
        """(B, E) how often each episode counts -> (B,)"""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return ((times @ self.numerator) / (times @ self.weight)).sum(1)


def mean_of(values: np.ndarray) -> Sums:
    """The plain mean of one number an episode, (E,)."""
    return Sums(values[:, None], np.ones((len(values), 1)))


def patient_counts(patients: np.ndarray, seed: int, resamples: int) -> np.ndarray:
    """(resamples, E), float64: how often each episode counts when patients (E,) are drawn with replacement."""
    known, owner = np.unique(patients, return_inverse=True)
    drawn = np.random.default_rng(seed).multinomial(len(known), np.full(len(known), 1 / len(known)), size=resamples)
    return drawn[:, owner].astype(np.float64)


def interval(resampled: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Percentile interval over those resamples in which the value is defined; NaN when it never is."""
    values = resampled[~np.isnan(resampled)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method="nearest")
    return float(low), float(high)
