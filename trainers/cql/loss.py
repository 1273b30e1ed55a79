"""Conservative Q-learning (arXiv 2006.04779, CQL(H)): pure functions. K: seeds times decision makers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class CQLTerms:
    """(K,) each."""

    total: Tensor
    td: Tensor
    """Loss of the temporal difference: Huber; of twin critics squared, summed over them."""
    conservative: Tensor
    """mean(log sum_a exp Q(s, a) - Q(s, a_D)), >= 0 on discrete actions; mean over twins."""


@dataclass(frozen=True)
class PolicyTerms:
    """(K,) each."""

    total: Tensor
    entropy: Tensor
    """Estimate of the policy's entropy over [-1, 1]^d (nats)."""


@dataclass(frozen=True)
class MultiplierTerms:
    """(K,) each: of a positive weight that is itself learnt."""

    total: Tensor
    value: Tensor


def cql_loss(
    q: Tensor,
    actions: Tensor,
    targets: Tensor,
    allowed: Tensor | None,
    alpha: float | Tensor,
    weights: Tensor | None = None,
) -> CQLTerms:
    """Values q (K, B, A), logged actions (K, B) int64, targets (K, B), allowed (K, B, A) bool or None.

    `weights` (K, B): of each transition's temporal difference; None: 1.
    """
    logged = q.gather(-1, actions[..., None]).squeeze(-1)
    errors = functional.huber_loss(logged, targets, reduction="none")
    td = (errors if weights is None else errors * weights).mean(-1)
    # logsumexp_a Q(s, a) - Q(s, a_D) as the cross-entropy that it is: one operation forth and one back
    conservative = -torch.log_softmax(masked(q, allowed), -1).gather(-1, actions[..., None]).mean((-2, -1))
    return CQLTerms(td + alpha * conservative, td, conservative)


def double_q_target(
    rewards: Tensor, discounts: Tensor, next_q: Tensor, next_target: Tensor, next_allowed: Tensor | None
) -> Tensor:
    """r + discount Q_target(s', argmax_a Q(s', a)) (arXiv 1509.06461): (K, B), without gradient."""
    best = masked(next_q, next_allowed).argmax(-1, keepdim=True)
    return (rewards + discounts * next_target.gather(-1, best).squeeze(-1)).detach()


def masked(values: Tensor, allowed: Tensor | None) -> Tensor:
    """-inf where an action is not allowed."""
    return values if allowed is None else values.masked_fill(~allowed, -torch.inf)


def continuous_loss(
    logged: Tensor, targets: Tensor, sampled: Tensor, densities: Tensor, alpha: float | Tensor
) -> CQLTerms:
    """Twin critics on continuous actions.

    `logged` (K, 2, B): Q of the logged actions; targets (K, B); `sampled` (K, 2, B, N): Q of sampled ones, and
    `densities` (K, B, N) the logarithms of the densities that each of them was drawn from (appendix F).
    """
    td = (logged - targets[:, None]).square().mean(-1).sum(-1)
    weighted = torch.logsumexp(sampled - densities[:, None], -1) - math.log(sampled.shape[-1])
    gaps = (weighted - logged).mean(-1)  # (K, 2)
    return CQLTerms(td + alpha * gaps.sum(-1), td, gaps.mean(-1))


def soft_target(
    rewards: Tensor, discounts: Tensor, next_q: Tensor, densities: Tensor, temperature: float | Tensor
) -> Tensor:
    """r + discount (min Q_target(s', a') - temperature log pi(a'|s')): next_q (K, 2, B) -> (K, B), no gradient."""
    return (rewards + discounts * (next_q.amin(1) - temperature * densities)).detach()


def policy_loss(q: Tensor, densities: Tensor, temperature: Tensor) -> PolicyTerms:
    """Twins q (K, 2, B) of the policy's own actions, their log-densities (K, B), temperature (K,) without gradient."""
    entropy = -densities.mean(-1)
    return PolicyTerms(-q.amin(1).mean(-1) - temperature * entropy, entropy)


def multiplier_loss(weight: Tensor, excess: Tensor) -> MultiplierTerms:
    """Gradient descent raises the weight (K,) while `excess` (K,) is above 0, and lowers it below."""
    return MultiplierTerms(-weight * excess.detach(), weight)
