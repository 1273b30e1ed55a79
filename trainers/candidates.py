"""Sampled actions with their densities, for log-sums over actions that cannot be listed (arXiv 2006.04779)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from refork.agents.squashed import sample
from torch import Tensor


@dataclass(frozen=True)
class Candidates:
    """C actions of each member at each state, without gradient."""

    actions: Tensor
    """(..., C, d) in [-1, 1]"""
    log_density: Tensor
    """(..., C): of each under the distribution that it was drawn from."""


def uniform_candidates(uniform: Tensor) -> Candidates:
    """`uniform`: (..., C, d) in [0, 1)."""
    dimensions = uniform.shape[-1]
    return Candidates(uniform * 2 - 1, torch.full(uniform.shape[:-1], -dimensions * math.log(2)))


@torch.no_grad()
def policy_candidates(mean: Tensor, log_std: Tensor, noise: Tensor) -> Candidates:
    """tanh(mean + std * noise); mean and log_std (..., d), `noise` (..., C, d), standard normal."""
    return Candidates(*sample(mean[..., None, :], log_std[..., None, :], noise))


def together(parts: Sequence[Candidates]) -> Candidates:
    """Of the same members and states, one after the other."""
    return Candidates(torch.cat([p.actions for p in parts], -2), torch.cat([p.log_density for p in parts], -1))


def weigh(values: Tensor, log_density: Tensor) -> Tensor:
    """(..., C) -> summands whose logsumexp over C estimates log of the integral of exp(value) over all actions."""
    return values - log_density - math.log(values.shape[-1])
