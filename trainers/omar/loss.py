"""OMAR, offline multi-agent learning with actor rectification (arXiv 2111.11188): pure functions. K: seeds * agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from refork.trainers.bc.loss import log_likelihood
from refork.trainers.cql.loss import masked
from refork.trainers.joint_loss import actor_terms
from torch import Tensor


@dataclass(frozen=True)
class RectifiedTerms:
    """(K,) each."""

    total: Tensor
    gradient: Tensor
    """What the policy gradient alone would minimise."""
    distance: Tensor
    """From the best action that the search found: squared, or the negative log-likelihood of it (nats)."""


def rectified(gradient: Tensor, distance: Tensor, coefficient: float) -> RectifiedTerms:
    """(1 - coefficient) gradient + coefficient distance (eq. 4)."""
    return RectifiedTerms((1 - coefficient) * gradient + coefficient * distance, gradient, distance)


def refit(actions: Tensor, values: Tensor, elites: int) -> tuple[Tensor, Tensor]:
    """Mean and deviation (..., 1, d) of the best actions (..., N, d), weighed by softmax of their values (..., N).

    With as many elites as actions it is the published refit (eq. 3, beta = 1).
    """
    best, places = values.topk(elites, dim=-1)
    weights = torch.softmax(best, -1)[..., None]
    chosen = actions.gather(-2, places[..., None].expand(*places.shape, actions.shape[-1]))
    mean = (weights * chosen).sum(-2, keepdim=True)
    return mean, (chosen - mean).square().mean(-2, keepdim=True).sqrt()


@torch.no_grad()
def search(value: Callable[[Tensor], Tensor], policy: Tensor, noise: Tensor, elites: int) -> Tensor:
    """The action of the greatest value among those sampled and the policy's own: (..., d) in [-1, 1].

    `value`: actions (..., N, d) -> (..., N); `policy`: (..., d); `noise`: (rounds, ..., N, d), standard normal. The
    first round is drawn around 0 with deviation 1.
    """
    best = policy[..., None, :]
    mean, std = torch.zeros_like(best), torch.ones_like(best)
    for drawn in noise:
        actions = (mean + std * drawn).clamp(-1.0, 1.0)
        values = value(torch.cat([best, actions], -2))
        mean, std = refit(actions, values[..., 1:], elites)
        place = values.argmax(-1, keepdim=True)[..., None].expand_as(best)
        best = torch.cat([best, actions], -2).gather(-2, place)
    return best.squeeze(-2)


def rectified_softmax(
    logits: Tensor, values: Tensor, allowed: Tensor | None, entropy: float, coefficient: float
) -> RectifiedTerms:
    """Softmax actors: every action is a candidate of the search. Logits and values (K, B, A), no gradient to values."""
    best = masked(values.detach(), allowed).argmax(-1)
    distance = -log_likelihood(logits, best, allowed).mean(-1)
    return rectified(actor_terms(logits, values, allowed, entropy).total, distance, coefficient)
