"""How far an iteration moved the policy, per operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from refork.trainers.pmd.loss import divergence
from refork.trainers.surrogate import chosen, entropy
from torch import Tensor


@dataclass(frozen=True)
class Drift:
    """Means over the decisions of an iteration, nats."""

    kl: float
    """KL(new || old)."""
    kl_reverse: float
    """KL(old || new)."""
    tv: float
    """Total variation distance."""
    max_log_ratio: float
    """Largest |log new(a) - log old(a)| of a move that was made."""
    entropy: float
    """Of the new policy."""


def drift(new: Sequence[Tensor], old: Sequence[Tensor], masks: Sequence[Tensor], actions: Sequence[Tensor]) -> Drift:
    """Each a sequence of parts: log-probabilities (R, moves), masks (R, moves), moves (R,)."""
    rows = [_rows(*part) for part in zip(new, old, masks, actions, strict=True)]
    kl, reverse, tv, ratio, spread = torch.cat(rows, 1).double()
    return Drift(float(kl.mean()), float(reverse.mean()), float(tv.mean()), float(ratio.max()), float(spread.mean()))


def _rows(new: Tensor, old: Tensor, mask: Tensor, actions: Tensor) -> Tensor:
    """(5, R)."""
    gap = chosen(new - old, actions).abs()
    tv = 0.5 * (new.exp() - old.exp()).abs().sum(1)
    return torch.stack([divergence(new, old, mask), divergence(old, new, mask), tv, gap, entropy(new)])
