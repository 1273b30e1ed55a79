"""Conservative Q-learning over joint actions (MACQL, the baseline of arXiv 2309.12696): pure functions."""

from __future__ import annotations

import torch
from refork.trainers.cql.loss import masked
from torch import Tensor


def joint_gap(summands: Tensor, logged: Tensor, available: Tensor | None = None) -> Tensor:
    """mean[ logsumexp over joint actions - Q_tot(s, a_D) ] (S,).

    `summands`: (S, B, J), Q_tot of every joint action, or of sampled ones less log(density) and log(J); `logged`: (S,
    B); `available`: (S, B, J) bool, what is not counts as -inf (never as 0, which would raise the sum), or None: all.
    """
    return (torch.logsumexp(masked(summands, available), -1) - logged).mean(-1)


def all_joint(agents: int, width: int) -> Tensor:
    """Every joint action: (width^agents, agents) int64."""
    return torch.cartesian_prod(*[torch.arange(width)] * agents).view(-1, agents)


def uniform_joint(uniform: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """Joint actions (S, B, M, n) drawn uniformly among the allowed ones, and their log-probability (S, B, M).

    `uniform`: (S, B, M, n) in [0, 1); `allowed`: (S, B, n, A) bool.
    """
    count = allowed.sum(-1)  # (S, B, n)
    order = torch.argsort(allowed.to(torch.uint8), dim=-1, descending=True, stable=True)  # allowed ones first
    place = (uniform * count[:, :, None]).long().transpose(-1, -2)  # (S, B, n, M)
    actions = order.gather(-1, place).transpose(-1, -2)
    return actions, -count.log().sum(-1, keepdim=True).expand(actions.shape[:-1])


def policy_joint(uniform: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Joint actions (S, B, M, n) of the policies softmax(logits), and their log-probability (S, B, M).

    `uniform`: (S, B, M, n) in [0, 1); `logits`: (S, B, n, A), -inf where not allowed.
    """
    logs = torch.log_softmax(logits, -1)
    steps = logs.exp().cumsum(-1)
    bounds = steps / steps[..., -1:]
    actions = torch.searchsorted(bounds, uniform.transpose(-1, -2).contiguous(), right=True)  # (S, B, n, M)
    return actions.transpose(-1, -2), logs.gather(-1, actions).sum(-2)
