"""Implicit Q-learning (arXiv 2110.06169): pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class IQLValueTerms:
    """(K,) each."""

    total: Tensor
    expectile: Tensor
    """Asymmetric squared error of V(s) against min Q_target(s, a_D) (eq. 5)."""
    td: Tensor
    """Squared temporal difference, summed over the twins (eq. 6)."""


@dataclass(frozen=True)
class IQLPolicyTerms:
    """(K,) each."""

    total: Tensor
    """Weighted negative log-likelihood (eq. 7)."""
    weight: Tensor
    """Mean weight."""


def value_loss(q: Tensor, targets: Tensor, value: Tensor, frozen_q: Tensor, expectile: float) -> IQLValueTerms:
    """Twins q (K, 2, B), their targets (K, B), V(s) (K, B), and min Q_target(s, a_D) (K, B); the last without
    gradient."""
    error = frozen_q - value
    weight = torch.where(error < 0, 1 - expectile, expectile)
    fitted = (weight * error.square()).mean(-1)
    td = (q - targets[:, None]).square().mean(-1).sum(-1)
    return IQLValueTerms(fitted + td, fitted, td)


def policy_loss(log_likelihood: Tensor, advantages: Tensor, beta: float, largest: float) -> IQLPolicyTerms:
    """Log-likelihood of the logged actions (K, B), advantages (K, B) without gradient."""
    weight = (beta * advantages).exp().clamp_max(largest)
    return IQLPolicyTerms(-(weight * log_likelihood).mean(-1), weight.mean(-1))
