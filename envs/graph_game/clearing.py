"""Who is served through whom in a round: a feasible flow of almost the greatest value, for all games at once.

The round's problem is a packing linear program: maximise sum_e value_e f_e over the coupling pairs e = (i, j) subject
to sites' limits, roads' limits (sum over both ends), nodes' limits and the supply network's rows, f >= 0 (a site's
service beyond its `knee` is worth `drop` less: here by the share of its limit that lies beyond). It is solved by dual
ascent on its entropy-regularised form: every constraint has a price, a pair's flow falls exponentially with the
prices on its way, a price rises by the logarithm of its constraint's overload (for disjoint constraints this is
Sinkhorn's iteration; see also proportional allocation, Agrawal, Zadimoghaddam and Mirrokni, ICML 2018). The result is
scaled down until it is feasible, and what is left free is filled. `exact.py` solves the same program exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.graph_game.batch import Batch

TEMPERATURES = (0.4, 0.4, 0.2, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05)
"""Of the entropy term, relative to the mean value of a pair, one an iteration."""
FILLS = 3
TINY = 1e-12


@dataclass(frozen=True)
class _Active:
    """The part of a batch where something can flow in this round, renumbered densely."""

    site: np.ndarray
    """(P,) active site of each active pair."""
    node: np.ndarray
    road: np.ndarray
    """(2, E) active sites at the ends of roads that can bind."""
    row: np.ndarray
    """(Q,) rows of the active nodes' entries."""
    row_node: np.ndarray
    coefficient: np.ndarray
    limits: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    """Of sites, nodes, roads, rows."""


@dataclass(frozen=True)
class Round:
    """What a round has to clear."""

    site_limit: np.ndarray
    """(B, N), units."""
    node_limit: np.ndarray
    """(B, M)"""
    value: np.ndarray
    """(P,) of a unit on each pair, before the knee of its site."""
    knee: np.ndarray
    """(B, N): units of this round's service that have the full value."""
    drop: np.ndarray
    """(B, N): what a unit beyond the knee is worth less."""


def clear(batch: Batch, now: Round) -> np.ndarray:
    """Flow (P,) on the pairs of `batch`, feasible, of almost the greatest value."""
    flow = np.zeros(batch.topology.pairs.shape[1])
    site_limit, node_limit = now.site_limit.ravel(), now.node_limit.ravel()
    site, node = batch.topology.pairs
    beyond = np.maximum(0.0, 1 - now.knee / np.maximum(now.site_limit, TINY)) * now.drop
    value = now.value - beyond.ravel()[site]
    chosen = np.flatnonzero((site_limit[site] > TINY) & (node_limit[node] > TINY) & (value > 0))
    if len(chosen):
        active = _activate(batch, site_limit, node_limit, chosen)
        relative = value[chosen] / _mean_of_game(value[chosen], site[chosen] // now.site_limit.shape[1])
        flow[chosen] = _fill(active, _feasible(active, _ascend(active, relative)), value[chosen])
    return flow


def within_limits(batch: Batch, now: Round, flow: np.ndarray) -> np.ndarray:
    """Flow (P,) scaled down where it breaks a limit, however little; none where a limit is next to nothing."""
    site_limit, node_limit = now.site_limit.ravel(), now.node_limit.ravel()
    site, node = batch.topology.pairs
    chosen = np.flatnonzero((flow > 0) & (site_limit[site] > TINY) & (node_limit[node] > TINY))
    kept = np.zeros_like(flow)
    if len(chosen):
        kept[chosen] = _feasible(_activate(batch, site_limit, node_limit, chosen), flow[chosen])
    return kept


def _mean_of_game(value: np.ndarray, game: np.ndarray) -> np.ndarray:
    """(P,): mean of the values of a pair's game, so that games of a batch do not touch each other."""
    return (np.bincount(game, value) / np.maximum(np.bincount(game), 1))[game]


def _activate(batch: Batch, site_limit: np.ndarray, node_limit: np.ndarray, chosen: np.ndarray) -> _Active:
    sites, site = np.unique(batch.topology.pairs[0, chosen], return_inverse=True)
    nodes, node = np.unique(batch.topology.pairs[1, chosen], return_inverse=True)
    site_number = _numbering(sites, len(site_limit))
    roads = site_number[batch.topology.roads]
    binding = (roads >= 0).any(0)
    ends = np.where(roads[:, binding] < 0, len(sites), roads[:, binding])  # the last one stands for: nothing there
    row_node = _numbering(nodes, len(node_limit))[batch.rows.node]
    entries = row_node >= 0
    rows, row = np.unique(batch.rows.index[entries], return_inverse=True)
    limits = (site_limit[sites], node_limit[nodes], batch.road_limit[binding], batch.rows.limit[rows])
    return _Active(site, node, ends, row, row_node[entries], batch.rows.coefficient[entries], limits)


def _numbering(chosen: np.ndarray, count: int) -> np.ndarray:
    """Place of each of `count` things among the chosen ones, -1 where it is not."""
    number = np.full(count, -1)
    number[chosen] = np.arange(len(chosen))
    return number


def _loads(a: _Active, flow: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What flows through sites, nodes, roads, rows."""
    limits = a.limits
    site = np.bincount(a.site, flow, len(limits[0]) + 1)
    node = np.bincount(a.node, flow, len(limits[1]))
    row = np.bincount(a.row, a.coefficient * node[a.row_node], len(limits[3]))
    return site[:-1], node, site[a.road[0]] + site[a.road[1]], row


def _ascend(a: _Active, value: np.ndarray) -> np.ndarray:
    """Flow after the iterations; it may break limits a little. Values are relative to the mean of their game."""
    prices = [np.zeros(len(limit)) for limit in a.limits]
    widest = np.minimum(a.limits[0][a.site], a.limits[1][a.node])
    for step in TEMPERATURES:
        for kind in range(4):
            flow = widest * np.exp(np.minimum((value - _way(a, prices)) / step, 30.0))
            load = _loads(a, flow)[kind]
            prices[kind] = np.maximum(0.0, prices[kind] + step * np.log(np.maximum(load, TINY) / a.limits[kind]))
    return widest * np.exp(np.minimum((value - _way(a, prices)) / step, 30.0))


def _way(a: _Active, prices: list[np.ndarray]) -> np.ndarray:
    """Sum of the prices on the way of each pair (P,)."""
    sites, nodes = len(prices[0]), len(prices[1])
    site = np.append(prices[0], 0.0)
    site += np.bincount(a.road[0], prices[2], sites + 1) + np.bincount(a.road[1], prices[2], sites + 1)
    node = prices[1] + np.bincount(a.row_node, a.coefficient * prices[3][a.row], nodes)
    return site[a.site] + node[a.node]


def _room(a: _Active, ratios: tuple[np.ndarray, ...]) -> np.ndarray:
    """The smallest of the constraints' ratios on the way of each pair (P,)."""
    site = np.append(ratios[0], np.inf)
    np.minimum.at(site, a.road[0], ratios[2])
    np.minimum.at(site, a.road[1], ratios[2])
    node = ratios[1].copy()
    np.minimum.at(node, a.row_node, ratios[3][a.row])
    return np.minimum(site[a.site], node[a.node])


def _feasible(a: _Active, flow: np.ndarray) -> np.ndarray:
    """Scale every pair by the worst overload on its way: no constraint is broken then."""
    ratios = tuple(
        np.minimum(1.0, limit / np.maximum(load, TINY)) for load, limit in zip(_loads(a, flow), a.limits, strict=True)
    )
    return flow * _room(a, ratios)


def _fill(a: _Active, flow: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Add what still fits, in proportion to the room left on each pair's way and its value."""
    for _ in range(FILLS):
        free = tuple(np.maximum(0.0, limit - load) for load, limit in zip(_loads(a, flow), a.limits, strict=True))
        wanted = np.minimum(free[0][a.site], free[1][a.node]) * value
        flow = flow + _feasible(_with_limits(a, free), wanted)
    return flow


def _with_limits(a: _Active, limits: tuple[np.ndarray, ...]) -> _Active:
    return _Active(a.site, a.node, a.road, a.row, a.row_node, a.coefficient, limits)  # type: ignore[arg-type]
