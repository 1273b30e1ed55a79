"""Own-graph encoder and attention over the coupled partner nodes; one set of weights plays games of any size.

Per operator: message passing over its own graph, then attention whose keys are partner nodes (encoded one by one, so
what is seen of the partner is one hop away), masked by the coupling. A learned null key stands for "no partner". A
head's slice of a node's encoding is both its key and its value (the maps before and after it make up for that).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from refork.agents.cross_graph_ops import (
    masked_log_softmax,
    neighbour_mean,
    pair_scores,
    pair_sum,
    softmax_with_null,
)
from refork.agents.cross_graph_wiring import Side, Wiring
from torch import Tensor, nn

View = Literal["own", "masked", "unmasked"]
VIEWS: tuple[View, ...] = get_args(View)


def _weight(*shape: int) -> nn.Parameter:
    """Uniform in +-1/sqrt(inputs), inputs being the one but last dimension."""
    bound = 1 / math.sqrt(shape[-2])
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


class PartnerAttention(nn.Module):
    """What each own node reads from partner nodes: those coupled to it (masked), or all of its game (unmasked)."""

    def __init__(self, partner_features: int, width: int, heads: int, view: View) -> None:
        super().__init__()
        self.view, self.heads = view, heads
        self.encode = nn.Linear(partner_features, width)
        self.query, self.out = _weight(width, width), _weight(width, width)
        self.null_key, self.null_value = _weight(width, heads), _weight(heads, width)

    def forward(self, base: Tensor, hidden: Tensor, partner: Tensor, side: Side) -> Tensor:
        """(R N, d) to add to, (R N, d), (R M, F) -> (R N, d)."""
        value = self.encode(partner).relu()
        query = hidden @ (self.query * (self.heads / len(self.query)) ** 0.5)
        null = hidden @ self.null_key  # (R N, H): scores of the null key
        attend = self._dense if self.view == "unmasked" else self._sparse
        read, alone = attend(query, value, null, side)
        return torch.addmm(torch.addmm(base, read, self.out), alone, self.null_value)

    def _sparse(self, query: Tensor, value: Tensor, null: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """What is read (R N, d) and the null key's weights (R N, H); cost linear in pairs."""
        pairs, size = side.coupling, query.shape[-1] // self.heads
        scores = pair_scores(query.view(-1, size), value.view(-1, size), pairs)
        weights, alone = softmax_with_null(scores, null.flatten(), pairs)
        return pair_sum(weights, value.view(-1, size), pairs).view(query.shape), alone.view(null.shape)

    def _dense(self, query: Tensor, value: Tensor, null: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """The same over every real partner node of the game."""
        query, value, null = (
            x.view(side.games, -1, self.heads, x.shape[-1] // self.heads).transpose(1, 2) for x in (query, value, null)
        )  # (R, H, N or M, d / H or 1)
        scores = query @ value.transpose(-1, -2)  # (R, H, N, M)
        if side.padded:
            scores = scores.masked_fill(~side.partner_mask[:, None, None], -torch.inf)
        weights = torch.cat([scores, null], -1).softmax(-1)
        read = (weights[..., :-1] @ value).transpose(1, 2)  # (R, N, H, d / H)
        return read.flatten(2).flatten(0, 1), weights[..., -1].transpose(1, 2).flatten(0, 1)


class Body(nn.Module):
    """One embedding per own node."""

    def __init__(
        self, own_features: int, partner_features: int, width: int, heads: int, rounds: int, view: View
    ) -> None:
        super().__init__()
        self.degrees = int(view == "masked")
        self.encode = nn.Linear(own_features + self.degrees, width)
        self.stay = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.spread = nn.ParameterList(_weight(width, width) for _ in range(rounds))
        self.attend = None if view == "own" else PartnerAttention(partner_features + self.degrees, width, heads, view)
        self.combine = nn.Linear(width, width)

    def forward(self, own: Tensor, partner: Tensor, side: Side) -> Tensor:
        """(R N, FO), (R M, FP) -> (R N, d). Features of padding may hold anything, NaN too."""
        if side.padded:
            own = own.masked_fill(~side.own_mask.view(-1, 1), 0.0)
            partner = partner.masked_fill(~side.partner_mask.view(-1, 1), 0.0)
        if self.degrees:
            own, partner = torch.cat([own, side.own_degree], 1), torch.cat([partner, side.partner_degree], 1)
        hidden = self.encode(own).relu()
        for stay, spread in zip(self.stay, self.spread, strict=True):
            hidden = hidden + torch.addmm(stay(hidden), neighbour_mean(hidden, side.neighbours), spread).relu()
        result = self.combine(hidden)
        if self.attend is not None:
            result = self.attend(result, hidden, partner, side)
        return result.relu()


def pool(rows: Tensor, side: Side) -> Tensor:
    """(R N, d) -> (R, d): mean over the real nodes of each game."""
    nodes = rows.view(side.games, -1, rows.shape[-1])
    if not side.padded:
        return nodes.mean(1)
    mask = side.own_mask[..., None].to(rows.dtype)
    return (nodes * mask).sum(1) / mask.sum(1)


class NodeHead(nn.Module):
    """One number per own node and one for pass."""

    def __init__(self, width: int, scale: float) -> None:
        """`scale` of the last layer's first weights: near 0, all numbers start near 0."""
        super().__init__()
        self.node, self.game = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.idle = nn.Linear(width, width)
        self.node_out, self.idle_out = nn.Linear(width, 1), nn.Linear(width, 1)
        with torch.no_grad():
            for parameter in (*self.node_out.parameters(), *self.idle_out.parameters()):
                parameter.mul_(scale)

    def forward(self, rows: Tensor, side: Side) -> Tensor:
        """(R N, d) -> (R, N + 1)."""
        game = pool(rows, side)
        nodes = self.node(rows).view(side.games, -1, game.shape[-1]) + self.game(game)[:, None]  # (R, N, d)
        return torch.cat([self.node_out(nodes.relu())[..., 0], self.idle_out(self.idle(game).relu())], 1)


class OperatorPolicy(nn.Module):
    """pi(. | what one operator sees)."""

    def __init__(self, body: Body, width: int) -> None:
        super().__init__()
        self.body, self.head = body, NodeHead(width, 0.01)

    def forward(self, own: Tensor, partner: Tensor, side: Side, mask: Tensor) -> Tensor:
        """(R N, FO), (R M, FP), bool (R, N + 1) -> log-probabilities (R, N + 1), -inf where masked; pass is the last.

        Raises ValueError when a row of the mask leaves no move.
        """
        return masked_log_softmax(self.head(self.body(own, partner, side), side), mask)


class CrossGraph(nn.Module):
    """The policies of both operators, demand and supply."""

    def __init__(
        self,
        feature_names: tuple[Sequence[str], Sequence[str]],
        *,
        view: View = "masked",
        width: int = 32,
        heads: int = 2,
        rounds: int = 2,
    ) -> None:
        """`feature_names`: of sites and of supply nodes. `view`: what an operator sees of the partner: nothing (own),
        the nodes coupled to its own (masked), or all (unmasked). `width`: of every layer. `heads`: of the attention.
        `rounds`: of message passing.

        Draws from torch's global generator. Raises ValueError for an unknown view or sizes that do not fit.
        """
        super().__init__()
        if view not in VIEWS:
            raise ValueError(f"view {view!r}; there are: {', '.join(VIEWS)}")
        if heads < 1 or rounds < 0:
            raise ValueError(f"heads {heads} must be at least 1, rounds {rounds} at least 0")
        self.view, self.width, self.heads, self.rounds = view, width, heads, rounds
        self.feature_counts = (len(feature_names[0]), len(feature_names[1]))
        self.policies = nn.ModuleList(OperatorPolicy(self.body(a, width), width) for a in range(2))

    def body(self, operator: int, width: int, extra: int = 0, view: View | None = None) -> Body:
        """A fresh body for an operator, with `extra` partner features; `view` None: the agent's.

        Raises ValueError for a width that the heads do not divide.
        """
        if width < 1 or width % self.heads:
            raise ValueError(f"width {width} must be a positive multiple of heads {self.heads}")
        own, partner = self.feature_counts[operator], self.feature_counts[1 - operator] + extra
        return Body(own, partner, width, self.heads, self.rounds, view or self.view)

    def forward(
        self, features: tuple[Tensor, Tensor], wiring: Wiring, masks: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Features (R N, FS), (R M, FN), masks (R, N + 1), (R, M + 1) -> log-probabilities shaped as the masks."""
        demand, supply = (self.policies[a](features[a], features[1 - a], wiring.sides[a], masks[a]) for a in range(2))
        return demand, supply

    def acting_weights(self) -> dict[str, np.ndarray]:
        """Copies of the weights, float32, and `options`, int64: what `CrossGraphPolicy` needs."""
        options = [VIEWS.index(self.view), self.width, self.heads, self.rounds, *self.feature_counts]
        arrays = {name: tensor.detach().cpu().numpy().copy() for name, tensor in self.state_dict().items()}
        return {**arrays, "options": np.array(options, np.int64)}
