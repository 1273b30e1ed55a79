"""The layers of the cross-graph networks: embeddings of an operator's own nodes, and readouts of them."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from refork.agents.cross_graph_ops import neighbour_mean, pair_scores, pair_sum, softmax_with_null
from refork.agents.cross_graph_wiring import Side
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
        """Features beyond the first `own_features` and `partner_features` are not looked at."""
        super().__init__()
        self.looked_at = (own_features, partner_features)
        self.degrees = int(view == "masked")
        self.encode = nn.Linear(own_features + self.degrees, width)
        self.stay = nn.ModuleList(nn.Linear(width, width) for _ in range(rounds))
        self.spread = nn.ParameterList(_weight(width, width) for _ in range(rounds))
        self.attend = None if view == "own" else PartnerAttention(partner_features + self.degrees, width, heads, view)
        self.combine = nn.Linear(width, width)

    def forward(self, own: Tensor, partner: Tensor, side: Side) -> Tensor:
        """(R N, FO), (R M, FP) -> (R N, d). Features of padding may hold anything, NaN too."""
        own, partner = own[:, : self.looked_at[0]], partner[:, : self.looked_at[1]]
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
