"""What conservative Q-learning of a joint value minimises beside the conservative term: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.trainers.cql.loss import masked
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class ConservativeTerms:
    """(S,) each."""

    total: Tensor
    td: Tensor
    """Loss of the temporal difference: Huber of discrete actions, squared of continuous ones, summed over twins."""
    conservative: Tensor
    """How far values of actions that were not logged exceed those of logged ones."""


@dataclass(frozen=True)
class ActorTerms:
    """(S,) each, means over states and decision makers."""

    total: Tensor
    value: Tensor
    """Of what the actor does: of Q_tot with the others as logged."""
    entropy: Tensor
    """Of the actor (nats)."""


def conservative_terms(logged: Tensor, targets: Tensor, gap: Tensor, alpha: float) -> ConservativeTerms:
    """Huber TD + alpha * gap; `logged` and `targets` (S, B), `gap` (S,)."""
    td = functional.huber_loss(logged, targets, reduction="none").mean(-1)
    return ConservativeTerms(td + alpha * gap, td, gap)


def actor_terms(logits: Tensor, swept: Tensor, allowed: Tensor | None, entropy: float) -> ActorTerms:
    """Softmax actors raise sum_a pi_i(a) Q_tot(s, a, a_D^{-i}) + entropy H(pi_i).

    Logits and `swept` (S, ..., A), with (B, n) between; allowed alike, bool or None. No gradient reaches `swept`.
    """
    logs = torch.log_softmax(masked(logits, allowed), -1)
    logs = logs if allowed is None else torch.where(allowed, logs, 0.0)
    shares = logs.exp() if allowed is None else logs.exp() * allowed
    value = (shares * swept.detach()).sum(-1).flatten(1).mean(1)
    surprise = -(shares * logs).sum(-1).flatten(1).mean(1)
    return ActorTerms(-value - entropy * surprise, value, surprise)


def twin_terms(logged: Tensor, targets: Tensor, gap: Tensor, alpha: float) -> ConservativeTerms:
    """Squared TD + alpha * gap, summed over twins: `logged` (2 S, B), `gap` (2 S,), seed-major; `targets` (S, B)."""
    td = (logged - targets.repeat_interleave(2, 0)).square().mean(-1).view(-1, 2).sum(-1)
    gaps = gap.view(-1, 2).sum(-1)
    return ConservativeTerms(td + alpha * gaps, td, gaps)


def twin_minimum(values: Tensor) -> Tensor:
    """(2 S, ...), seed-major -> (S, ...)"""
    return values.unflatten(0, (-1, 2)).amin(1)


@dataclass(frozen=True)
class PolicyTerms:
    """(S,) each, means over states and decision makers."""

    total: Tensor
    value: Tensor
    """Q_tot of what the actor does, the others as logged."""
    size: Tensor
    """Mean square of the actors' outputs."""


def policy_terms(swept: Tensor, outputs: Tensor, shrink: float) -> PolicyTerms:
    """Counterfactual policy gradient: actors raise Q_tot(s, pi_i(s), a_D^{-i}), (S, B, n) - shrink * size.

    `outputs`: (S, B, n, d), the actions before tanh.
    """
    value, size = swept.mean((1, 2)), outputs.square().mean((1, 2, 3))
    return PolicyTerms(-value + shrink * size, value, size)
