"""Conservative Q-learning on discrete actions (arXiv 2006.04779, CQL(H)): pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class CQLTerms:
    """(S,) each."""

    total: Tensor
    td: Tensor
    """Huber loss of the temporal difference."""
    conservative: Tensor
    """mean(logsumexp_a Q(s, a) - Q(s, a_D)), >= 0."""


def cql_loss(q: Tensor, actions: Tensor, targets: Tensor, allowed: Tensor | None, alpha: float) -> CQLTerms:
    """Values q (S, B, A), logged actions (S, B) int64, targets (S, B), allowed (S, B, A) bool or None."""
    logged = q.gather(-1, actions[..., None]).squeeze(-1)
    td = functional.huber_loss(logged, targets, reduction="none").mean(-1)
    conservative = (torch.logsumexp(masked(q, allowed), -1) - logged).mean(-1)
    return CQLTerms(td + alpha * conservative, td, conservative)


def double_q_target(
    rewards: Tensor, discounts: Tensor, next_q: Tensor, next_target: Tensor, next_allowed: Tensor | None
) -> Tensor:
    """r + discount Q_target(s', argmax_a Q(s', a)) (arXiv 1509.06461): (S, B), without gradient."""
    best = masked(next_q, next_allowed).argmax(-1, keepdim=True)
    return (rewards + discounts * next_target.gather(-1, best).squeeze(-1)).detach()


def masked(values: Tensor, allowed: Tensor | None) -> Tensor:
    """-inf where an action is not allowed."""
    return values if allowed is None else values.masked_fill(~allowed, -torch.inf)
