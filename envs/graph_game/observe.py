"""What operators see: features of sites and of supply nodes, scaled to about one, and the legal moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from refork.envs.graph_game.local_scores import best_at, local_scores, one_hop_moves
from refork.envs.graph_game.room import CAP, node_headroom, road_room

if TYPE_CHECKING:
    from refork.envs.graph_game.game import Game

COUPLED = ("coupled_alone", "coupled_pair", "coupled_move")
"""Features that only the coupling tells, always the last ones: what raising the node alone, or with its best partner,
would bring by the scores of the decentralised greedy; and 1 at the node that it would raise."""
SITE_FEATURES = (
    *("level", "open", "demand", "demand_ahead", "capacity", "price", "capital", "upkeep"),
    *("served", "idle", "room", "full_value_left", "pool_left", "road_room"),
    *("gain", "unlock", "time_left", "budget", *COUPLED),
)
NODE_FEATURES = (
    *("level", "open", "capacity", "tariff", "capital", "upkeep", "take"),
    *("through", "idle", "headroom", "stock", "expiring", "gain", "unlock", "time_left", "budget", *COUPLED),
)
SCALE = 8.0
"""Money that counts as one."""


@dataclass(frozen=True)
class Observation:
    """Of B games: the demand operator's own nodes are sites, its partner's the supply nodes; mirrored for supply."""

    site: np.ndarray
    """(B, N, len(SITE_FEATURES)), float32."""
    node: np.ndarray
    """(B, M, len(NODE_FEATURES)), float32."""
    masks: tuple[np.ndarray, np.ndarray]
    """Legal moves (B, N + 1) and (B, M + 1), bool."""


def observe(game: Game) -> Observation:
    """What holds before the round `game.t`; after the end: what held before the last one, as far as time goes."""
    masks = game.legal()
    coupled = _coupled_features(game)
    left = game.batch.budget - game.state.spent
    site = _site_features(game, masks[0][:, :-1], left[:, 0], coupled[0])
    node = _node_features(game, masks[1][:, :-1], left[:, 1], coupled[1])
    return Observation(site, node, masks)


def _site_features(game: Game, legal: np.ndarray, left: np.ndarray, coupled: list[np.ndarray]) -> np.ndarray:
    site, state = game.batch.site, game.state
    t = min(game.t, game.horizon - 1)
    capacity = site["site_capacity"]
    pool = np.maximum(0.0, site["pool"] - state.covered)
    idle = capacity * state.site_level - state.served
    room = np.minimum(game.demand[t], pool) - capacity * state.site_level
    roads = road_room(game)
    added = np.clip(np.minimum(room, roads), 0.0, capacity)
    worth, rounds = _worth_of_site(game, np.stack([added, np.minimum(idle, roads)])), game.horizon - t
    features = [
        state.site_level / game.batch.levels[:, None],
        legal,
        game.demand[t],
        game.expected[t:].mean(0),
        capacity,
        site["price"],
        np.minimum(site["site_capital"], CAP) / 2,
        10 * site["site_upkeep"],
        state.served,
        idle,
        room,
        np.maximum(0.0, site["knee"] - state.covered) / 2,
        pool / 4,
        roads,
        (worth[0] - rounds * site["site_upkeep"] - np.minimum(site["site_capital"], CAP)) / SCALE,
        worth[1] / SCALE,
        *_shared(game, left, site["site_capital"], state.site_level.shape),
        *coupled,
    ]
    return _stacked(features, game.topology.site_mask)


def _coupled_features(game: Game) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """COUPLED of sites (B, N) and of supply nodes (B, M)."""
    if game.ended:
        return [np.zeros_like(game.state.served)] * 3, [np.zeros_like(game.state.through)] * 3
    scores = local_scores(game)
    moves = one_hop_moves(game, scores)
    found = []
    for end, (alone, pairs) in enumerate(zip((scores.site, scores.node), game.topology.pairs, strict=True)):
        best = best_at(scores.pair, pairs, alone.size).reshape(alone.shape)
        chosen = moves[:, end, None] == np.arange(alone.shape[1])
        found.append([alone / SCALE, best / SCALE, chosen])
    return found[0], found[1]


def _worth_of_site(game: Game, units: np.ndarray) -> np.ndarray:
    """Income (..., B, N) from `units` (..., B, N) served in each round that is left."""
    site = game.batch.site
    total = np.minimum(units * (game.horizon - min(game.t, game.horizon - 1)), site["pool"] - game.state.covered)
    early = np.minimum(total, np.maximum(0.0, site["knee"] - game.state.covered))
    return site["price"] * early + site["late_price"] * (total - early)


def _node_features(game: Game, legal: np.ndarray, left: np.ndarray, coupled: list[np.ndarray]) -> np.ndarray:
    node, state = game.batch.node, game.state
    capacity = node["node_capacity"]
    stock = state.stock.sum(-1)
    ages = np.arange(state.stock.shape[-1])
    expiring = np.where(ages == game.batch.shelf_life[:, None, None] - 1, state.stock, 0.0).sum(-1)
    headroom, rounds = node_headroom(game), game.horizon - min(game.t, game.horizon - 1)
    idle, capital = capacity * state.node_level + stock - state.through, np.minimum(game.next_node_capital(), 3 * CAP)
    added, unused = np.minimum(capacity, headroom), np.minimum(idle, headroom)
    features = [
        state.node_level / game.batch.levels[:, None],
        legal,
        capacity,
        node["tariff"],
        capital / 4,
        10 * node["node_upkeep"],
        node["take"],
        state.through,
        idle,
        headroom,
        stock,
        expiring,
        (rounds * (node["tariff"] * added - node["node_upkeep"]) - capital) / SCALE,
        rounds * node["tariff"] * unused / SCALE,
        *_shared(game, left, node["node_capital"], state.node_level.shape),
        *coupled,
    ]
    return _stacked(features, game.topology.node_mask)


def _shared(game: Game, left: np.ndarray, capital: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Time left, and the builds that the budget still pays for per round left: the same at all nodes of a game."""
    rounds = max(1, game.horizon - game.t)
    known = np.isfinite(capital)
    mean = np.where(known, capital, 0.0).sum(1) / known.sum(1)
    time = np.full(shape, 1 - game.t / game.horizon)
    return time, np.broadcast_to((left / mean / rounds)[:, None], shape)


def _stacked(features: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    """(B, N, F), float32, 0 on padding."""
    stacked = np.stack([np.clip(f, -CAP, CAP) for f in features], -1).astype(np.float32)
    return stacked * mask[..., None]
