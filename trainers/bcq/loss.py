"""Batch-constrained Q-learning on discrete actions (arXiv 1910.01708): pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from refork.trainers.cql.loss import masked
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class BCQTerms:
    """(K,) each."""

    total: Tensor
    """Huber loss of the temporal difference."""


def in_support(logits: Tensor, allowed: Tensor | None, threshold: float) -> Tensor:
    """Actions with at least `threshold` of the likeliest allowed one's probability: (K, B, A) bool (eq. 16)."""
    logits = masked(logits, allowed)
    floor = math.log(threshold) if threshold > 0 else -torch.inf
    kept = logits - logits.max(-1, keepdim=True).values >= floor
    return kept if allowed is None else kept & allowed


def bcq_loss(q: Tensor, actions: Tensor, targets: Tensor) -> BCQTerms:
    """Values q (K, B, A), logged actions (K, B) int64, targets (K, B)."""
    logged = q.gather(-1, actions[..., None]).squeeze(-1)
    return BCQTerms(functional.huber_loss(logged, targets, reduction="none").mean(-1))
