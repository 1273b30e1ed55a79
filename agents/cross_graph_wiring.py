"""Who is connected to whom in a batch of games, as index arrays that gather and sum without any N x M tensor.

T rounds of B games are R = T * B games to the network: row (t * B + b) * N + i is node i of game b in round t.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from refork.envs.topology import Topology
from torch import Tensor


@dataclass(frozen=True)
class Neighbours:
    """The own graph: the neighbours of row r are `index[offsets[r]:offsets[r + 1]]`."""

    index: Tensor
    """(2 E R / B,), int64: rows, grouped by the row whose neighbours they are."""
    offsets: Tensor
    """(R N,), int64."""
    inverse_degree: Tensor
    """(R N, 1), float32: 1 / number of neighbours, 1 where there is none."""


@dataclass(frozen=True)
class Incidence:
    """The coupling, one entry per (game, pair, head), sorted by own row: head h of node row r is row r * H + h."""

    own: Tensor
    """(K,), int64, ascending."""
    partner: Tensor
    """(K,), int64."""
    own_offsets: Tensor
    """(R N H,), int64: where the entries of an own row begin."""
    own_lengths: Tensor
    """(R N H,), int64."""
    order: Tensor
    """(K,), int64: the entries sorted by partner row."""
    own_ordered: Tensor
    """(K,), int64: `own` in that order."""
    partner_offsets: Tensor
    """(R M H,), int64: where, in that order, the entries of a partner row begin."""


@dataclass(frozen=True)
class Side:
    """R games as one operator sees them: N own nodes, M partner nodes."""

    games: int
    own_mask: Tensor
    """(R, N), bool: real, not padding."""
    partner_mask: Tensor
    """(R, M), bool."""
    padded: bool
    """Whether there is any padding."""
    neighbours: Neighbours
    coupling: Incidence
    own_degree: Tensor
    """(R N, 1), float32: log(1 + number of coupled partner nodes)."""
    partner_degree: Tensor
    """(R M, 1), float32: log(1 + number of coupled own nodes)."""


@dataclass(frozen=True)
class Wiring:
    """R = rounds * B games, for attention with H heads."""

    sides: tuple[Side, Side]
    """Demand, supply."""


def wire(topology: Topology, rounds: int, heads: int) -> Wiring:
    """Index arrays for `rounds` rounds of these games. Cost and size: linear in rounds x (nodes + edges + pairs)."""
    masks = tuple(torch.from_numpy(np.tile(m, (rounds, 1))) for m in (topology.site_mask, topology.node_mask))
    sizes = (topology.site_mask.size, topology.node_mask.size)
    padded = not (topology.site_mask.all() and topology.node_mask.all())
    degrees = tuple(_log_degree(topology.pairs[a], sizes[a], rounds) for a in range(2))
    sides = [
        Side(
            len(masks[a]),
            masks[a],
            masks[1 - a],
            padded,
            _neighbours(edges, sizes[a], rounds),
            _incidence(topology.pairs[a], topology.pairs[1 - a], (sizes[a], sizes[1 - a]), rounds, heads),
            degrees[a],
            degrees[1 - a],
        )
        for a, edges in enumerate((topology.roads, topology.links))
    ]
    return Wiring((sides[0], sides[1]))


def _log_degree(ends: np.ndarray, rows: int, copies: int) -> Tensor:
    return torch.from_numpy(np.tile(np.log1p(np.bincount(ends, minlength=rows).astype(np.float32)), copies)[:, None])


def _neighbours(edges: np.ndarray, rows: int, copies: int) -> Neighbours:
    """Both directions of `edges` (2, E), grouped by end, `copies` times."""
    ends = np.concatenate([edges[0], edges[1]])
    others = np.concatenate([edges[1], edges[0]])
    degree = np.bincount(ends, minlength=rows)
    index = _copies(others[np.argsort(ends, kind="stable")], copies, rows)
    inverse = (1.0 / np.maximum(degree, 1)).astype(np.float32)
    return Neighbours(index, _starts(degree, copies), torch.from_numpy(np.tile(inverse, copies)[:, None]))


def _incidence(own: np.ndarray, partner: np.ndarray, sizes: tuple[int, int], copies: int, heads: int) -> Incidence:
    """`own`, `partner` (P,): the flat ends of the pairs of `copies` equal games."""
    sizes = (sizes[0] * heads, sizes[1] * heads)
    own, partner = ((ends[:, None] * heads + np.arange(heads)).reshape(-1) for ends in (own, partner))  # (P H,)
    by_own = np.argsort(own, kind="stable")
    own, partner = own[by_own], partner[by_own]
    order = np.argsort(partner, kind="stable")
    degree = np.bincount(own, minlength=sizes[0])
    return Incidence(
        _copies(own, copies, sizes[0]),
        _copies(partner, copies, sizes[1]),
        _starts(degree, copies),
        torch.from_numpy(np.tile(degree, copies)),
        _copies(order, copies, len(order)),
        _copies(own[order], copies, sizes[0]),
        _starts(np.bincount(partner, minlength=sizes[1]), copies),
    )


def _copies(index: np.ndarray, copies: int, step: int) -> Tensor:
    """(E,) -> (copies * E,): the c-th copy is shifted by c * step."""
    return torch.from_numpy((index[None] + step * np.arange(copies)[:, None]).reshape(-1))


def _starts(lengths: np.ndarray, copies: int) -> Tensor:
    """(rows,) -> (copies * rows,): exclusive running sum."""
    tiled = np.tile(lengths, copies)
    return torch.from_numpy(np.cumsum(tiled) - tiled)
