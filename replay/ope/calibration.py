"""How well a behaviour policy foretells what was done: likelihood, reliability, expected calibration error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

EDGES = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Reliability:
    """Decisions and actions whose probability was said to be between `low` and `high`."""

    low: float
    high: float
    count: int
    said: float
    """Mean probability said."""
    seen: float
    """Share in which that action was taken."""


@dataclass(frozen=True)
class Calibration:
    """Of one decision maker."""

    nll: float
    """Mean -log p(logged action), nats."""
    nll_marginal: float
    """The same of the actions' overall shares: what knowing the situation has to beat."""
    ece: float
    """Expected calibration error of the likeliest action, 10 equal bins (arXiv 1706.04599, eq. 3)."""
    table: tuple[Reliability, ...]


def calibration(probabilities: np.ndarray, actions: np.ndarray) -> Calibration:
    """Probabilities (N, A) that were said without knowing the logged actions (N,)."""
    logged = probabilities[np.arange(len(actions)), actions]
    shares = np.bincount(actions, minlength=probabilities.shape[1]) / len(actions)
    return Calibration(
        _nll(logged),
        _nll(shares[actions]),
        expected_error(probabilities, actions),
        reliability(probabilities, actions),
    )


def _nll(logged: np.ndarray) -> float:
    with np.errstate(divide="ignore"):
        return float(-np.log(logged).mean())


def expected_error(probabilities: np.ndarray, actions: np.ndarray, bins: int = 10) -> float:
    """Mean over decisions of |said - seen| of the likeliest action, in bins of what was said."""
    likeliest = probabilities.argmax(1)
    said, right = probabilities.max(1), likeliest == actions
    where = np.minimum((said * bins).astype(int), bins - 1)
    gaps = np.bincount(where, said, bins) - np.bincount(where, right, bins)
    return float(np.abs(gaps).sum() / len(actions))


def reliability(probabilities: np.ndarray, actions: np.ndarray) -> tuple[Reliability, ...]:
    """All actions of all decisions, in bins of what was said; empty bins are left out."""
    said = probabilities.ravel()
    taken = (np.arange(probabilities.shape[1]) == actions[:, None]).ravel()
    where = np.clip(np.searchsorted(EDGES, said, side="right") - 1, 0, len(EDGES) - 2)
    counts, sums, seen = (np.bincount(where, w, len(EDGES) - 1) for w in (None, said, taken))
    return tuple(
        Reliability(EDGES[k], EDGES[k + 1], int(counts[k]), float(sums[k] / counts[k]), float(seen[k] / counts[k]))
        for k in np.flatnonzero(counts)
    )
