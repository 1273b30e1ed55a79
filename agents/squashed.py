"""Gaussians squashed by tanh: the policies of continuous actions, all actions and densities in [-1, 1]^d."""

from __future__ import annotations

import math

import numpy as np
import torch
from refork.agents.q_networks import Head
from torch import Tensor, nn
from torch.nn import functional

LOG_STD = (-5.0, 2.0)
"""Bounds of the logarithm of the standard deviation before squashing."""
EDGE = 1 - 1e-5
"""Actions beyond are taken as this one where a density is asked for: that of an action at a bound is infinite."""


class SquashedGaussian(nn.Module):
    """K policies tanh(mean + std * normal) from a head of 2 d numbers; it acts by tanh(mean)."""

    def __init__(self, head: Head, dimensions: int) -> None:
        super().__init__()
        self.head, self.dimensions = head, dimensions

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """(K, B, ...) -> mean and log of the standard deviation, before squashing: (K, B, d) each."""
        mean, log_std = self.head(observations).split(self.dimensions, -1)
        return mean, log_std.clamp(*LOG_STD)

    def acting_arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """The head without its second half (agents/log_policy.py)."""
        arrays = self.head.acting_arrays(prefix)
        last = [f"{prefix}.table.rows", f"{prefix}.first.weights.0", f"{prefix}.first.biases.0"]
        if self.head.rest is not None:
            depth = len(self.head.rest.weights) - 1
            last = [f"{prefix}.rest.weights.{depth}", f"{prefix}.rest.biases.{depth}"]
        return {k: v[..., : self.dimensions].copy() if k in last else v for k, v in arrays.items()}


def sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions (..., d) and their log-densities (...), with gradient to mean and log_std."""
    raw = mean + log_std.exp() * noise
    return torch.tanh(raw), _log_density(mean, log_std, raw)


def log_density(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Of given actions (..., d): (...)."""
    return _log_density(mean, log_std, torch.atanh(actions.clamp(-EDGE, EDGE)))


def _log_density(mean: Tensor, log_std: Tensor, raw: Tensor) -> Tensor:
    normal = -0.5 * ((raw - mean) / log_std.exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    squash = 2 * (math.log(2) - raw - functional.softplus(-2 * raw))  # log(1 - tanh(raw)^2)
    return (normal - squash).sum(-1)
