"""Rules that look at an operator's own nodes at most: passing, chance, and the own-only greedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from refork.envs.graph_game.game import Game


class Heuristic(Protocol):
    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2), int64, of both operators in all games before round `game.t`."""
        ...


class Pass:
    """Nobody ever builds: earns 0."""

    def moves(self, game: Game) -> np.ndarray:
        return np.tile([game.batch.sites, game.batch.nodes], (game.batch.games, 1))


@dataclass
class Random:
    """Each operator draws a legal move, pass included."""

    seed: int

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def moves(self, game: Game) -> np.ndarray:
        return np.stack([(self.rng.random(m.shape) * m).argmax(1) for m in game.legal()], 1)


class OwnGreedy:
    """Each operator raises what would earn it most by its own nodes alone.

    It expects as large a share of what it offers to be used as was used in the last round, counting one more node in
    full, so that it starts hopeful and stops building what nobody comes to use.
    """

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        state, site, node, left = game.state, game.batch.site, game.batch.node, game.horizon - game.t
        useful = np.minimum(game.expected[game.t :].mean(0), np.maximum(0.0, site["pool"] - state.covered) / left)
        now, then = (np.minimum(useful, site["site_capacity"] * (state.site_level + more)) for more in (0, 1))
        used = _share_used(state.served, now, game.topology.site_mask)
        demand = left * (used * site["price"] * (then - now) - site["site_upkeep"]) - site["site_capital"]
        used = _share_used(state.through, node["node_capacity"] * state.node_level, game.topology.node_mask)
        earned = used * node["tariff"] * node["node_capacity"] - node["node_upkeep"]
        supply = left * earned - game.next_node_capital()
        return np.stack([_best_or_pass(g, legal) for g, legal in zip((demand, supply), game.legal(), strict=True)], 1)


def _share_used(used: np.ndarray, offered: np.ndarray, real: np.ndarray) -> np.ndarray:
    """(B, 1), of amounts (B, n); about one unit more counts as offered and used."""
    return (1 + (used * real).sum(1, keepdims=True)) / (1 + (offered * real).sum(1, keepdims=True))


def _best_or_pass(gain: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """(B,): the legal build of the greatest gain (B, n), or pass where none gains."""
    gain = np.where(legal[:, :-1], gain, -np.inf)
    return np.where(gain.max(1) > 0, gain.argmax(1), gain.shape[1])
