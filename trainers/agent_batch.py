"""A minibatch as each decision maker sees it, for trainers that treat them as independent learners of one team reward.

The leading axis is seed-major: K = seeds x decision makers, the order of the members of their heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.envs.log_spec import ActionSpec, LogSpec
from refork.trainers.log_batch import Batch
from torch import Tensor


@dataclass(frozen=True)
class AgentBatch:
    """B transitions for each of K = S * n members."""

    observations: Tensor
    """(K, B, features) float32, of states (K, B) int64."""
    actions: Tensor
    """(K, B) int64; continuous (K, B, dimensions) in [-1, 1]."""
    rewards: Tensor
    """(K, B): of the team."""
    next_observations: Tensor
    """As `observations`."""
    discounts: Tensor
    """(K, B)"""
    allowed: Tensor | None
    """(K, B, width) bool, or None: all."""
    next_allowed: Tensor | None
    """(K, B, width) bool, or None: all."""
    both: Tensor
    """(K, 2 B, ...): `observations`, and behind them `next_observations`."""
    next_rows: Tensor
    """(K, B) int64: rows of `next_observations` in the log."""


def by_agent(batch: Batch, spec: LogSpec) -> AgentBatch:
    """(S, B, n, ...) -> (S * n, B, ...); what is shared is repeated."""
    n, own, discrete = spec.action.agents, spec.observation.per_agent, spec.action.kind == "discrete"
    actions = batch.actions if discrete else to_unit(batch.actions, spec.action)
    both = _split(batch.both) if own else _repeat(batch.both, n)
    seen, following = both.split(batch.rewards.shape[1], 1)
    return AgentBatch(
        seen,
        _split(actions),
        _repeat(batch.rewards, n),
        following,
        _repeat(batch.discounts, n),
        _split_mask(legal(batch.allowed, spec.action, batch.actions)),
        _split_mask(legal(batch.next_allowed, spec.action, batch.actions)),
        both,
        _repeat(batch.next_rows, n),
    )


def legal(allowed: Tensor | None, action: ActionSpec, like: Tensor) -> Tensor | None:
    """(S, B, n, width): allowed, and within each decision maker's own number of actions; None: all.

    `like`: (S, B, n, ...), whose first axes a mask takes that only the numbers of actions make.
    """
    if action.agents == 1 or action.kind == "continuous" or min(action.sizes) == action.width:
        return allowed
    within = torch.arange(action.width) < torch.tensor(action.sizes)[:, None]  # (n, width)
    return within.expand(*like.shape[:2], -1, -1) if allowed is None else allowed & within


def to_unit(actions: Tensor, action: ActionSpec) -> Tensor:
    """Continuous actions (..., dimensions) -> [-1, 1]; a dimension that cannot vary -> -1."""
    low, high = torch.tensor(action.low), torch.tensor(action.high)
    width = torch.where(high > low, high - low, torch.ones_like(low))
    return ((actions - low) / width * 2 - 1).clamp(-1.0, 1.0)


def _repeat(x: Tensor, n: int) -> Tensor:
    """(S, B, ...) -> (S * n, B, ...)"""
    return x if n == 1 else x.repeat_interleave(n, 0)


def _split(x: Tensor) -> Tensor:
    """(S, B, n, ...) -> (S * n, B, ...)"""
    return x[:, :, 0] if x.shape[2] == 1 else x.transpose(1, 2).flatten(0, 1)


def _split_mask(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else _split(mask)
