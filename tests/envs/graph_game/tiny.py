"""Games small enough to be computed by hand, and random play of any game."""

from dataclasses import replace
from typing import Any

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.instance import Instance


def tiny(sites: int = 1, nodes: int = 1, horizon: int = 4, **changes: Any) -> Instance:
    """All coupled with all, roads and links in a row. A unit brings 2 and 1; a level serves 1, costs 1, keeps for .1
    and .2 a round. `changes` are fields; numbers stand for whole arrays."""
    instance = Instance(
        name="tiny",
        domain="tiny",
        levels=3,
        roads=np.stack([np.arange(sites - 1), np.arange(1, sites)], 1),
        road_limit=np.full(sites - 1, 100.0),
        links=np.stack([np.arange(nodes - 1), np.arange(1, nodes)], 1),
        pairs=np.stack([np.repeat(np.arange(sites), nodes), np.tile(np.arange(nodes), sites)], 1),
        demand=np.full((horizon, sites), 10.0),
        price=np.full(sites, 2.0),
        late_price=np.zeros(sites),
        knee=np.full(sites, np.inf),
        pool=np.full(sites, np.inf),
        site_capacity=np.ones(sites),
        site_capital=np.ones(sites),
        site_upkeep=np.full(sites, 0.1),
        tariff=np.ones(nodes),
        node_capacity=np.ones(nodes),
        node_capital=np.ones(nodes),
        node_start=np.zeros(nodes),
        node_upkeep=np.full(nodes, 0.2),
        take=np.zeros(nodes),
        take_price=np.zeros(nodes),
        row_limit=np.zeros(0),
        row_index=np.zeros(0, np.int64),
        row_node=np.zeros(0, np.int64),
        row_coefficient=np.zeros(0),
        budget=np.array([100.0, 100.0]),
    )
    shaped = {
        name: np.broadcast_to(value, getattr(instance, name).shape).copy()
        if isinstance(getattr(instance, name), np.ndarray) and np.ndim(value) < np.ndim(getattr(instance, name))
        else value
        for name, value in changes.items()
    }
    return replace(instance, **shaped)


def two_pairs() -> Instance:
    """Sites 0 and 1 depend on nodes 0 and 1; one level each, three rounds; a pair serves 1.5 a round, at 1.5 and 2.5 a
    unit, costs 2.25 once and keeps for 0.2. Best is the better pair at once, then the other: 8.4 + 1.85."""
    return tiny(
        2,
        2,
        3,
        levels=1,
        pairs=np.array([[0, 0], [1, 1]]),
        price=np.array([1.0, 2.0]),
        tariff=0.5,
        site_capacity=2.0,
        node_capacity=1.5,
        node_start=0.25,
        node_upkeep=0.1,
    )


def random_moves(game: Game, rng: np.random.Generator, passing: float = 0.2) -> np.ndarray:
    """Legal moves (B, 2), passes with that probability where others are legal too."""
    moves = np.zeros((game.batch.games, 2), np.int64)
    for agent, legal in enumerate(game.legal()):
        weight = rng.random(legal.shape) * legal
        weight[:, -1] = np.where(rng.random(len(legal)) < passing, 2.0, 1e-9)
        moves[:, agent] = weight.argmax(1)
    return moves
