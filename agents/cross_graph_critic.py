"""Critics of the cross-graph games: the same bodies as the policies, read out by game or by move."""

from __future__ import annotations

from typing import Literal

import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_body import NodeHead, pool
from refork.agents.cross_graph_wiring import Side, Wiring
from torch import Tensor, nn

CriticKind = Literal["value", "central", "counterfactual"]


class ValueCritic(nn.Module):
    """V of each operator from what its policy sees: two networks."""

    def __init__(self, agent: CrossGraph, width: int) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(agent.body(a, width) for a in range(2))
        self.heads = nn.ModuleList(_readout(width, width, 1) for _ in range(2))

    def forward(self, features: tuple[Tensor, Tensor], wiring: Wiring) -> Tensor:
        """(R N, FS), (R M, FN) -> (R, 2)."""
        values = [
            head(pool(body(features[a], features[1 - a], wiring.sides[a]), wiring.sides[a]))
            for a, (body, head) in enumerate(zip(self.bodies, self.heads, strict=True))
        ]
        return torch.cat(values, 1)


class CentralCritic(nn.Module):
    """V of each operator from both graphs and the coupling, whatever the policies see (MAPPO, arXiv 2103.01955)."""

    def __init__(self, agent: CrossGraph, width: int) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(agent.body(a, width, view="masked") for a in range(2))
        self.head = _readout(2 * width, width, 2)

    def forward(self, features: tuple[Tensor, Tensor], wiring: Wiring) -> Tensor:
        """(R N, FS), (R M, FN) -> (R, 2)."""
        pooled = [
            pool(body(features[a], features[1 - a], wiring.sides[a]), wiring.sides[a])
            for a, body in enumerate(self.bodies)
        ]
        return self.head(torch.cat(pooled, 1))


class CounterfactualCritic(nn.Module):
    """Q_i(s, a_i, a_-i) of each operator for all its own moves at once, the partner's move given.

    COMA (arXiv 1705.08926) for payoffs that differ: one Q per operator. The partner's raised node is flagged in the
    features of the partner's nodes, so an operator sees the move as far as its view goes.
    """

    def __init__(self, agent: CrossGraph, width: int) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(agent.body(a, width, extra=1) for a in range(2))
        self.heads = nn.ModuleList(NodeHead(width, 1.0) for _ in range(2))

    def forward(self, features: tuple[Tensor, Tensor], wiring: Wiring, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(R N, FS), (R M, FN), int64 (R, 2) -> (R, N + 1), (R, M + 1)."""
        found = []
        for a, (body, head) in enumerate(zip(self.bodies, self.heads, strict=True)):
            side = wiring.sides[a]
            known = features[1 - a][:, : body.looked_at[1] - 1]  # type: ignore[index]
            partner = torch.cat([known, _flag(actions[:, 1 - a], side)], 1)
            found.append(head(body(features[a], partner, side), side))
        return found[0], found[1]


def _flag(moves: Tensor, side: Side) -> Tensor:
    """(R,) -> (R M, 1): 1 at the partner's raised node, nowhere when it passed."""
    count = side.partner_mask.shape[1]
    hot = torch.zeros(side.games, count + 1).scatter_(1, moves[:, None], 1.0)
    return hot[:, :count].reshape(-1, 1)


def _readout(inputs: int, width: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


Critic = ValueCritic | CentralCritic | CounterfactualCritic
_KINDS: dict[CriticKind, type[Critic]] = {
    "value": ValueCritic,
    "central": CentralCritic,
    "counterfactual": CounterfactualCritic,
}


def make_critic(kind: CriticKind, agent: CrossGraph, width: int, seed: int) -> Critic:
    """A fresh critic for what `agent` sees; weights from `seed` alone. Raises ValueError for a width that is unfit."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _KINDS[kind](agent, width)
