"""Hidden confounders z of an episode as M nodes, and networks that see a node beside an observation.

Classes are one-hot with a learnt prior; a normal confounder is a number on Gauss-Hermite nodes with their weights. On
nodes every expectation over z is a sum, and the posterior of an episode is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from refork.agents.q_networks import LogNetworks
from refork.agents.stacked import StackedMLP
from torch import Tensor, nn

ABSENT = -1e9
"""Log-probability of a node that a world does not have; finite, so that its gradient is 0."""


@dataclass(frozen=True)
class Latent:
    """What the confounder of one world is."""

    prior: Literal["classes", "normal"]
    nodes: int
    """1 class: there is no confounder."""

    @classmethod
    def of(cls, text: str) -> Latent:
        """From `classes-2`, `normal-3`. Raises ValueError for another text."""
        prior, _, nodes = text.partition("-")
        if prior not in ("classes", "normal") or not nodes.isdecimal() or int(nodes) < 1:
            raise ValueError(f"a world is `classes-K` or `normal-K` with K >= 1, got {text!r}")
        return cls(prior, int(nodes))  # type: ignore[arg-type]


class LatentHead(nn.Module):
    """K networks of an observation and a node: (K, B, ...) and (K, M, D) -> (K, M, B, out).

    The first layer sees observation and node apart, so that it is computed once an observation, not once a node.
    """

    def __init__(
        self,
        factory: LogNetworks,
        out: int,
        inputs: int,
        hidden: Sequence[int],
        *,
        seeds: int,
        copies: int,
        purpose: int,
        extra: int = 0,
    ) -> None:
        super().__init__()
        made = factory.generators(seeds, copies, purpose + 1)
        self.first = factory.head(hidden[0], seeds, copies, extra, purpose, hidden=())
        self.node = StackedMLP([inputs, hidden[0]], made)
        self.rest = StackedMLP([*hidden, out], made)

    def forward(
        self, observations: Tensor, nodes: Tensor, extra: Tensor | None = None, joined: Tensor | None = None
    ) -> Tensor:
        """`extra` (K, B, ...) stands beside the observation; `joined` (K, B, hidden) is added to the first layer."""
        first = self.first(observations, extra)
        first = first if joined is None else first + joined
        x = first[:, None] + self.node(nodes)[:, :, None]  # (K, M, B, hidden)
        members, points, batch, width = x.shape
        x = self.rest(torch.relu(x).view(members, points * batch, width))
        return x.view(members, points, batch, -1)


def priors(latents: Sequence[Latent]) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes (W, M, D), their log-weights (W, M) and whether these are learnt (W, 1)."""
    points = max(latent.nodes for latent in latents)
    nodes, logits = torch.zeros(len(latents), points, points + 1), torch.full((len(latents), points), ABSENT)
    for world, latent in enumerate(latents):
        m = latent.nodes
        if latent.prior == "classes":
            nodes[world, :m, :m], logits[world, :m] = torch.eye(m), 0.0
        else:
            at, weights = np.polynomial.hermite_e.hermegauss(m)
            nodes[world, :m, -1] = torch.from_numpy(at).float()
            logits[world, :m] = torch.from_numpy(np.log(weights / weights.sum())).float()
    return nodes, logits, torch.tensor([[float(latent.prior == "classes")] for latent in latents])
