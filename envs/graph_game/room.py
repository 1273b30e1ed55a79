"""What networks would still let through at a node, after the last round's flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from refork.envs.graph_game.game import Game

CAP = 4.0
"""Units beyond which room is as good as endless."""


def road_room(game: Game) -> np.ndarray:
    """(B, N): the least that the roads at a site would still let through, after the last round's service."""
    served = game.state.served.ravel()
    first, second = game.topology.roads
    slack = game.batch.road_limit - served[first] - served[second]
    room = np.full(served.size, CAP)
    np.minimum.at(room, first, slack)
    np.minimum.at(room, second, slack)
    return room.reshape(game.state.served.shape)


def node_headroom(game: Game) -> np.ndarray:
    """(B, M): the least more that the rows of the supply network would let through a node."""
    rows, through = game.batch.rows, game.state.through.ravel()
    slack = rows.limit - np.bincount(rows.index, rows.coefficient * through[rows.node], len(rows.limit))
    room = np.full(through.size, CAP)
    np.minimum.at(room, rows.node, slack[rows.index] / rows.coefficient)
    return room.reshape(game.state.through.shape)
