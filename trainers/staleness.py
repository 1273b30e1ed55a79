"""Learning from what an older policy played: truncated importance weights. Pure.

The surrogate is taken around the policy as it is when the update begins, not around the one that acted, and each
decision's advantage is weighed by min(cap, pi_now(a) / pi_acted(a)): "decoupled" PPO (arXiv 2110.00641), weights
truncated as in IMPALA (arXiv 1802.01561).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.trainers.surrogate import log_ratio
from torch import Tensor


@dataclass(frozen=True)
class Correction:
    """Of n decisions."""

    weights: Tensor
    """As `now` is shaped; in [0, cap]."""
    truncated: Tensor
    """Bool: those whose ratio was above the cap."""

    def metrics(self) -> dict[str, float]:
        """How many were stale, and how much that mattered."""
        return {
            "stale/decisions": float(self.weights.numel()),
            "stale/weight": float(self.weights.mean()),
            "stale/truncated": float(self.truncated.float().mean()),
        }


def correction(now: Tensor, acted: Tensor, cap: float) -> Correction:
    """`now`, `acted`: log-probabilities of the actions taken, under the policy as it is and as it acted."""
    ratio = log_ratio(now, acted).exp()
    return Correction(ratio.clamp(max=cap), ratio > cap)


def together(parts: list[Correction]) -> Correction:
    """Of all decisions of several parts."""
    weights, truncated = zip(*((p.weights.flatten(), p.truncated.flatten()) for p in parts), strict=True)
    return Correction(torch.cat(weights), torch.cat(truncated))
