"""How dense logged decisions are around a situation and an action: the guardian's measure, numpy only.

Fitted on the pairs it is given and no others: hand it the training part. Situations that are states are counted;
vectors get a Gaussian kernel density, of discrete actions one per action (joint: only pairs of that action count).
Bandwidths maximise the leave-one-out likelihood; the threshold is a percentile of the densities of pairs that are no
centre, or, where all are, of leave-one-out densities (after OGSRL, whose bandwidth .535 and percentile 5 were fixed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogSpec

FACTORS = (0.1, 0.15, 0.25, 0.4, 0.6, 0.9, 1.3, 1.8)
"""Bandwidths tried, times Scott's rule."""
PROBES = 500
"""Pairs that the leave-one-out likelihood is measured on."""
BLOCK = 2_000_000
"""Kernel values held at once."""


@dataclass(frozen=True)
class CountDensity:
    """Log-density of (state, discrete action): log of its share of the logged pairs, -inf where never logged."""

    table: np.ndarray
    """(states, A) float32"""
    threshold: float

    def of_actions(self, observations: np.ndarray) -> np.ndarray:
        """(B,) -> (B, A)."""
        return self.table[observations]

    def arrays(self) -> dict[str, np.ndarray]:
        return {"table": self.table, "threshold": np.array(self.threshold)}


@dataclass(frozen=True)
class KernelDensity:
    """Log-density of (vector, action), of standardised features; of discrete actions a mass over A as well."""

    shift: np.ndarray
    """(D,), of the features and then of continuous actions."""
    scale: np.ndarray
    """(D,): standard deviation times bandwidth."""
    centres: np.ndarray
    """(M, D) float32, shifted and scaled."""
    chosen: np.ndarray
    """(M, A) float32 one-hot actions of the centres; (M, 1) of ones where actions are continuous."""
    constant: float
    """Log of what normalises one kernel, with log M."""
    threshold: float

    def of_actions(self, observations: np.ndarray) -> np.ndarray:
        """(B, features) -> (B, A), of discrete actions."""
        return self._scores(observations)

    def of_pairs(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """(B, features) and continuous actions (B, dimensions) -> (B,)."""
        return self._scores(np.concatenate([observations, actions], -1))[:, 0]

    def _scores(self, points: np.ndarray) -> np.ndarray:
        """(B, D) -> (B, A or 1)."""
        z = ((points - self.shift) / self.scale).astype(np.float32)
        block = max(1, BLOCK // len(self.centres))
        parts = [_log_sums(_squares(z[i : i + block], self.centres), self.chosen) for i in range(0, len(z), block)]
        return np.concatenate(parts) - self.constant if parts else np.zeros((0, self.chosen.shape[1]), np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        names = ("shift", "scale", "centres", "chosen", "constant", "threshold")
        return {name: np.asarray(getattr(self, name)) for name in names}


Density = CountDensity | KernelDensity


def density_of(arrays: Mapping[str, np.ndarray]) -> Density:
    """The inverse of `arrays()`."""
    if "table" in arrays:
        return CountDensity(arrays["table"], float(arrays["threshold"]))
    plain = {name: array for name, array in arrays.items() if name not in ("constant", "threshold")}
    return KernelDensity(**plain, constant=float(arrays["constant"]), threshold=float(arrays["threshold"]))


def fit_density(
    spec: LogSpec, observations: np.ndarray, actions: np.ndarray, percentile: float, most: int, seed: int
) -> Density:
    """The density of these logged pairs, observations (N, ...) and actions (N, 1) or (N, 1, dimensions).

    At most `most` of them, drawn by `seed`, become centres. Raises BadInput for logs it is not defined on.
    """
    if spec.action.agents != 1 or spec.observation.per_agent:
        raise BadInput("the guardian's density is defined for one decision maker with one observation")
    if spec.observation.kind == "states":
        if spec.action.kind != "discrete":
            raise BadInput("the guardian's density of continuous actions needs a log of vectors, this one is of states")
        return _counted(np.asarray(observations), actions[:, 0], (spec.observation.size, spec.action.width), percentile)
    order = np.random.default_rng(seed).permutation(len(observations))
    centres, others = order[:most], order[most : most + most]
    if spec.action.kind == "discrete":
        chosen = np.eye(spec.action.width, dtype=np.float32)[actions[:, 0]]
        return _kernels([np.asarray(observations)], chosen, centres, others, percentile)
    chosen = np.ones((len(actions), 1), np.float32)
    return _kernels([np.asarray(observations), actions[:, 0]], chosen, centres, others, percentile)


def _counted(states: np.ndarray, actions: np.ndarray, shape: tuple[int, int], percentile: float) -> CountDensity:
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (states, actions), 1)
    total = len(states)
    left_out = (counts[states, actions] - 1) / max(1, total - 1)
    least = 0.5 / total  # what was never logged is always below
    with np.errstate(divide="ignore"):
        table = np.log(counts / total).astype(np.float32)
    return CountDensity(table, float(np.log(max(least, np.percentile(left_out, percentile, method="lower")))))


def _kernels(
    parts: list[np.ndarray], chosen: np.ndarray, centres: np.ndarray, others: np.ndarray, percentile: float
) -> KernelDensity:
    """`parts`: features and continuous actions, which get bandwidths of their own."""
    points = np.concatenate(parts, -1)
    shift, spread = points.mean(0, np.float64), points.std(0, dtype=np.float64)
    spread = np.where(spread > 1e-6, spread, 1.0)
    z = ((points - shift) / spread).astype(np.float32)
    edges = np.cumsum([0, *(part.shape[-1] for part in parts)])
    blocks = [z[:, a:b] for a, b in pairwise(edges)]
    widths = _bandwidths([block[centres] for block in blocks], chosen[centres])
    width = np.repeat(widths, np.diff(edges))
    constant = np.log(len(centres)) + np.log(width).sum() + 0.5 * len(width) * np.log(2 * np.pi)
    kept = (z[centres] / width).astype(np.float32)
    made = KernelDensity(shift, spread * width, kept, chosen[centres], float(constant), -np.inf)
    if len(others):
        found = made._scores(points[others])[chosen[others] > 0]
    else:
        found = _left_out(_squares(kept, kept), chosen[centres], np.arange(len(kept))) - constant
    finite = found[np.isfinite(found)]
    threshold = np.percentile(np.where(np.isfinite(found), found, finite.min(initial=0.0) - 1), percentile)
    return replace(made, threshold=float(threshold))


def _bandwidths(blocks: list[np.ndarray], chosen: np.ndarray) -> list[float]:
    """The factors, one a block, of the greatest leave-one-out likelihood."""
    count, size = len(blocks[0]), sum(block.shape[1] for block in blocks)
    scott = max(count, 2) ** (-1 / (size + 4))
    probes = np.arange(min(PROBES, count))
    squares = [_squares(block[probes], block) for block in blocks]
    best, found = -np.inf, [scott * FACTORS[-1]] * len(blocks)
    for tried in np.stack(np.meshgrid(*[FACTORS] * len(blocks)), -1).reshape(-1, len(blocks)):
        widths = [scott * float(f) for f in tried]
        together = sum(s / w**2 for s, w in zip(squares, widths, strict=True))
        scores = _left_out(np.asarray(together), chosen, probes)
        scores = np.maximum(scores, -1e4) - sum(b.shape[1] * np.log(w) for b, w in zip(blocks, widths, strict=True))
        if scores.mean() > best:
            best, found = float(scores.mean()), widths
    return found


def _left_out(squares: np.ndarray, chosen: np.ndarray, probes: np.ndarray) -> np.ndarray:
    """(P, M) squared distances -> (P,): log kernel sums over the centres of the same action, but the probe itself."""
    squares = squares.copy()
    squares[np.arange(len(probes)), probes] = np.inf
    return _log_sums(squares, chosen)[chosen[probes] > 0]


def _squares(z: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(B, D), (M, D) -> (B, M), >= 0."""
    found = (z**2).sum(1)[:, None] + (centres**2).sum(1) - 2 * z @ centres.T
    return np.maximum(found, 0, out=found)


def _log_sums(squares: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """(B, M), (M, A) -> (B, A): log of the sum of exp(-squares / 2) over the centres of each action."""
    least = squares.min(1, keepdims=True)
    least = np.where(np.isfinite(least), least, 0.0).astype(np.float32)
    with np.errstate(divide="ignore"):
        return np.log(np.exp((least - squares) / 2) @ chosen) - least / 2
