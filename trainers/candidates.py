"""Sampled actions with their densities, for log-sums over actions that cannot be listed (arXiv 2006.04779)."""

from __future__ import annotations

import math
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


@torch.no_grad()
def draw_candidates(uniform: Tensor, noise: Tensor, means: list[Tensor], log_std: float) -> Candidates:
    """A third each: uniform ones, then ones of the policies tanh(mean + std * noise), densities of their own.

    `uniform`: (..., C, d) in [0, 1); `noise`: (..., len(means) * C, d), standard normal; `means`: (..., d) each.
    """
    count, dimensions = uniform.shape[-2:]
    actions, densities = [uniform * 2 - 1], [torch.full(uniform.shape[:-1], -dimensions * math.log(2))]
    for mean, drawn in zip(means, noise.split(count, -2), strict=True):
        found, density = sample(mean[..., None, :], torch.tensor(log_std), drawn)
        actions.append(found)
        densities.append(density)
    return Candidates(torch.cat(actions, -2), torch.cat(densities, -1))


def weigh(values: Tensor, log_density: Tensor) -> Tensor:
    """(..., C) -> summands whose logsumexp over C estimates log of the integral of exp(value) over all actions."""
    return values - log_density - math.log(values.shape[-1])
