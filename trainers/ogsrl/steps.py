"""Decisions that the critic learns from, logged and imagined alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Steps:
    """N decisions for each of S seeds."""

    observations: Tensor
    """(S, N, ...)"""
    actions: Tensor
    """(S, N) int64; continuous (S, N, d) in [-1, 1]."""
    rewards: Tensor
    """(S, N)"""
    next_observations: Tensor
    """As `observations`."""
    discounts: Tensor
    """(S, N): gamma^dt, 0 at an end."""
    costs: Tensor
    """(S, N, J): out of support first, then one a safety limit."""
    legal: Tensor
    """(S, N, A), bool: of discrete actions; (S, N, 0) of continuous ones."""
    next_legal: Tensor
    """As `legal`."""
    weights: Tensor
    """(S, N): 1, or 0 where an imagined episode was over before."""


def joined(steps: Sequence[Steps]) -> Steps:
    """One after the other along N."""
    return Steps(*(torch.cat([getattr(s, f.name) for s in steps], 1) for f in fields(Steps)))
