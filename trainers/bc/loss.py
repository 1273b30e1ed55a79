"""Behaviour cloning: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.agents.squashed import log_density
from refork.trainers.cql.loss import masked
from torch import Tensor


@dataclass(frozen=True)
class BCTerms:
    """(K,) each."""

    total: Tensor
    imitation: Tensor
    """Mean negative log-likelihood of the logged actions (nats), or squared error in [-1, 1]^d."""
    size: Tensor
    """Mean of the squared outputs."""


def discrete_loss(logits: Tensor, actions: Tensor, allowed: Tensor | None, shrink: float) -> BCTerms:
    """Logits (K, B, A), logged actions (K, B) int64, allowed (K, B, A) bool or None."""
    return _terms(-log_likelihood(logits, actions, allowed).mean(-1), logits, shrink)


def log_likelihood(logits: Tensor, actions: Tensor, allowed: Tensor | None) -> Tensor:
    """Of actions (..., B) under softmax(logits (..., B, A)) among the allowed ones: (..., B)."""
    return torch.log_softmax(masked(logits, allowed), -1).gather(-1, actions[..., None]).squeeze(-1)


def mean_loss(outputs: Tensor, actions: Tensor, shrink: float) -> BCTerms:
    """Outputs (K, B, d) before tanh, logged actions (K, B, d) in [-1, 1]."""
    return _terms((torch.tanh(outputs) - actions).square().sum(-1).mean(-1), outputs, shrink)


def gaussian_loss(mean: Tensor, log_std: Tensor, actions: Tensor, shrink: float) -> BCTerms:
    """Mean and log-deviation (K, B, d) before tanh, logged actions (K, B, d) in [-1, 1]."""
    return _terms(-log_density(mean, log_std, actions).mean(-1), mean, shrink)


def _terms(imitation: Tensor, outputs: Tensor, shrink: float) -> BCTerms:
    size = outputs.square().mean((1, 2))
    return BCTerms(imitation + shrink * size, imitation, size)
