"""Sums over neighbours and pairs with gradients of their own: nothing larger than the pairs is ever made.

`embedding_bag` sums gathered rows without writing them out, an order faster here than gather and scatter-add.
"""

from __future__ import annotations

from typing import Any

import torch
from refork.agents.cross_graph_wiring import Incidence, Neighbours
from torch import Tensor
from torch.nn import functional as F


def _bag_sum(table: Tensor, index: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
    """(rows, d), (K,), (bags,) -> (bags, d): sum of weights[k] * table[index[k]] over each bag; 0 for empty ones."""
    return F.embedding_bag(index, table.contiguous(), offsets, mode="sum", per_sample_weights=weights)


class _NeighbourMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, graph: Neighbours) -> Tensor:
        ctx.graph = graph
        return _bag_sum(rows, graph.index, graph.offsets) * graph.inverse_degree

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        graph = ctx.graph
        return _bag_sum(gradient * graph.inverse_degree, graph.index, graph.offsets), None


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, pairs: Incidence) -> Tensor:
        ctx.save_for_backward(query, key)
        ctx.pairs = pairs
        return _dots(query, key, pairs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        query, key = ctx.saved_tensors
        return _to_own(gradient, key, ctx.pairs), _to_partner(gradient, query, ctx.pairs), None


class _PairSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, value: Tensor, pairs: Incidence) -> Tensor:
        ctx.save_for_backward(weights, value)
        ctx.pairs = pairs
        return _to_own(weights, value, pairs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        weights, value = ctx.saved_tensors
        gradient = gradient.contiguous()
        return _dots(gradient, value, ctx.pairs), _to_partner(weights, gradient, ctx.pairs), None


def _dots(own: Tensor, partner: Tensor, pairs: Incidence) -> Tensor:
    """(own rows, d), (partner rows, d) -> (K,)."""
    return own.index_select(0, pairs.own).mul_(partner.index_select(0, pairs.partner)).sum(-1)


def _to_own(weights: Tensor, partner: Tensor, pairs: Incidence) -> Tensor:
    """(K,), (partner rows, d) -> (own rows, d)."""
    return _bag_sum(partner, pairs.partner, pairs.own_offsets, weights)


def _to_partner(weights: Tensor, own: Tensor, pairs: Incidence) -> Tensor:
    """(K,), (own rows, d) -> (partner rows, d)."""
    return _bag_sum(own, pairs.own_ordered, pairs.partner_offsets, weights.index_select(0, pairs.order))


def neighbour_mean(rows: Tensor, graph: Neighbours) -> Tensor:
    """(R N, d) -> (R N, d): mean over the neighbours, 0 where there is none."""
    return _NeighbourMean.apply(rows, graph)


def pair_scores(query: Tensor, key: Tensor, pairs: Incidence) -> Tensor:
    """(own rows, d), (partner rows, d) -> (K,): dot product of each pair."""
    return _PairScores.apply(query, key, pairs)


def pair_sum(weights: Tensor, value: Tensor, pairs: Incidence) -> Tensor:
    """(K,), (partner rows, d) -> (own rows, d): weighted sum over the partners of each own row."""
    return _PairSum.apply(weights, value, pairs)


def softmax_with_null(scores: Tensor, null: Tensor, pairs: Incidence) -> tuple[Tensor, Tensor]:
    """Softmax over the pairs of each own row and one null entry that is always there.

    (K,), (own rows,) -> weights (K,), null's weight (own rows,); they sum to 1 per own row.
    """
    top = torch.segment_reduce(scores.detach(), "max", lengths=pairs.own_lengths, initial=-torch.inf, unsafe=True)
    top = torch.maximum(top, null.detach())
    weights = (scores - top.index_select(0, pairs.own)).exp()
    alone = (null - top).exp()
    inverse = (alone.index_add(0, pairs.own, weights)).reciprocal()
    return weights * inverse.index_select(0, pairs.own), alone * inverse


def masked_log_softmax(logits: Tensor, mask: Tensor) -> Tensor:
    """(games, moves) -> log-probabilities, -inf where the mask is False; masked logits get no gradient.

    Raises ValueError when a row of the mask leaves no move: a uniform draw over illegal ones would go unnoticed.
    """
    legal = mask.any(-1)
    if not bool(legal.all()):
        rows = (~legal).nonzero()[:, 0].tolist()
        raise ValueError(f"the mask leaves no move in rows {rows[:5]}: pass must stay legal, or the game must end")
    return logits.masked_fill(~mask, -torch.inf).log_softmax(-1)
