"""The monotonic mixer of several decision makers' utilities (QMIX, arXiv 1803.11485), for S seeds at once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.agents.q_networks import LogNetworks
from torch import Tensor, nn
from torch.nn import functional

EMBED, HYPER = 32, 64
"""Widths of the mixing layer and of the network that makes its weights, as published."""


@dataclass(frozen=True)
class Mixing:
    """The mixer at B states: Q_tot = v + sum_e out_e elu(bias_e + sum_i weights_ie u_i), weights and out >= 0."""

    weights: Tensor
    """(S, B, n, E)"""
    bias: Tensor
    """(S, B, E)"""
    out: Tensor
    """(S, B, E)"""
    value: Tensor
    """(S, B)"""

    def of(self, utilities: Tensor) -> Tensor:
        """Utilities (S, B, M, n) of M joint actions -> Q_tot (S, B, M)."""
        hidden = functional.elu(self.bias[:, :, None] + utilities @ self.weights)  # (S, B, M, E)
        return (hidden @ self.out[..., None]).squeeze(-1) + self.value[..., None]

    def sweep(self, utilities: Tensor, actions: Tensor) -> Tensor:
        """Q_tot (S, B, n, A) where one decision maker takes each action in turn and the others theirs.

        `utilities`: (S, B, n, A); `actions`: (S, B, n) int64. Only what changes is mixed again.
        """
        own = utilities.gather(-1, actions[..., None]) * self.weights  # (S, B, n, E)
        others = (self.bias + own.sum(-2))[:, :, None] - own
        hidden = torch.addcmul(others[..., None, :], utilities[..., None], self.weights[..., None, :])
        hidden = functional.elu(hidden, inplace=True)  # (S, B, n, A, E)
        mixed = (hidden.flatten(2, 3) @ self.out[..., None]).view(utilities.shape)
        return mixed + self.value[:, :, None, None]


class MonotonicMixer(nn.Module):
    """Q_tot rises in each decision maker's utility, so each one's best action is part of the best joint action."""

    def __init__(self, factory: LogNetworks, seeds: int, purpose: int) -> None:
        super().__init__()
        self.agents = factory.spec.action.agents
        out = (self.agents + 2) * EMBED + 1
        self.hyper = factory.joint().head(out, seeds, purpose=purpose, hidden=(HYPER,))

    def forward(self, joint: Tensor) -> Mixing:
        """What all decision makers see, (S, B, ...) as `LogNetworks.joint` takes it."""
        n = self.agents
        weights, out, bias, value = self.hyper(joint).split([n * EMBED, EMBED, EMBED, 1], -1)
        return Mixing(weights.abs().unflatten(-1, (n, EMBED)), bias, out.abs(), value.squeeze(-1))
