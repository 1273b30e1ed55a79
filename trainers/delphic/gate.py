"""Which worlds are compatible with the log: pure functions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Fit:
    """How well each world explains episodes that it was not fitted to."""

    log_likelihood: Tensor
    """(S, W): nats a step."""
    variation: Tensor
    """(S, W): total variation of the world's action marginal from the logged one, beyond sampling noise."""


def compatible(fit: Fit, tolerance: float, marginal_tolerance: float) -> Tensor:
    """(S, W) bool. The best likelihood is that of the worlds whose marginal fits, so one that fits stays."""
    fits = fit.variation <= marginal_tolerance
    best = fit.log_likelihood.masked_fill(~fits, -torch.inf).amax(-1, keepdim=True)
    return fits & (fit.log_likelihood >= best - tolerance)


def episode_log_likelihood(steps: Tensor, log_prior: Tensor, episode: Tensor, episodes: int) -> Tensor:
    """Joint log p(z, episode): steps (K, M, N) summed over each step's episode (N,) int64, plus log p(z) (K, M).

    Returns (K, M, E). The posterior is its softmax over M, the exact encoder q(z | episode); logsumexp the evidence.
    """
    sums = steps.new_zeros(*steps.shape[:2], episodes).index_add_(2, episode, steps)
    return sums + log_prior[..., None]


def excess_variation(marginal: Tensor, logged: Tensor) -> Tensor:
    """Marginals (K, A) against logged actions (N,) int64 -> (K,): total variation less what sampling explains, >= 0.

    The mean absolute deviation of a frequency p from n draws is about sqrt(2 p (1 - p) / (pi n)).
    """
    frequency = torch.bincount(logged, minlength=marginal.shape[-1]).to(marginal.dtype) / len(logged)
    noise = (2 / torch.pi * frequency * (1 - frequency) / len(logged)).sqrt().sum() / 2
    return ((marginal - frequency).abs().sum(-1) / 2 - noise).clamp_min(0.0)
