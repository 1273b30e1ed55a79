"""How much an operator leaves on the table: its best reply to the other's moves against what it earned (small games).

The reply is found by a program that chooses flows freely, so its value bounds the regret from above; its moves, played
again under the game's own clearing, bound it from below. Both are in parts of the bound on the welfare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from refork.cluster.game_bounds import BoundCache
from refork.cluster.game_tasks import GameSource
from refork.envs.graph_game.bound import best_response
from refork.envs.graph_game.instance import AGENTS
from refork.replay.game_pack import LostGames
from refork.replay.games import PlayedGames

SITES = 12
"""Largest game in which the program closes."""
GAMES = 6
"""Games looked at."""
LIMIT_S = 20.0


def mean_regret(
    experience: Sequence[PlayedGames | LostGames], source: GameSource, bounds: BoundCache
) -> dict[str, dict[str, Any]]:
    """By operator: `at_least`, `at_most` (means), `games`; empty when no game is small enough."""
    small = [
        (e, b)
        for e in experience
        if isinstance(e, PlayedGames)
        for b, task in enumerate(e.tasks)
        if source.instance(task).sites <= SITES
    ]
    chosen = small[:: max(1, -(-len(small) // GAMES))]
    if not chosen:
        return {}
    found = np.array([[_regret(e, b, agent, source, bounds) for agent in (0, 1)] for e, b in chosen])
    return {
        name: {
            "at_least": float(found[:, agent, 0].mean()),
            "at_most": float(found[:, agent, 1].mean()),
            "games": len(chosen),
        }
        for agent, name in enumerate(AGENTS)
    }


def _regret(played: PlayedGames, b: int, agent: int, source: GameSource, bounds: BoundCache) -> tuple[float, float]:
    instance = source.instance(played.tasks[b])
    game = source.game([instance.name], [played.noise_seeds[b]])
    demand = game.demand[:, 0]
    moves = _unpadded(played, b, (instance.sites, instance.nodes))
    reply = best_response(instance, agent, moves[:, 1 - agent], LIMIT_S, demand)
    moves[:, agent] = reply.moves
    again = sum(float(game.step(row[None]).own[0, agent]) for row in moves)
    earned = float(played.own[:, b, agent].sum())
    upper = bounds.upper(instance, demand if source.options.noise else None)
    return max(0.0, again - earned) / upper, max(0.0, reply.value_bound - earned) / upper


def _unpadded(played: PlayedGames, b: int, counts: tuple[int, int]) -> np.ndarray:
    """Moves (T, 2) of one game as it would be played alone: passes are numbered by its own size."""
    moves = played.actions[:, b].copy()
    for agent, mask in enumerate(played.masks):
        moves[moves[:, agent] == mask.shape[2] - 1, agent] = counts[agent]
    return moves
