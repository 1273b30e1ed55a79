"""Rules to play by, from passing to a central greedy: what any learned policy has to be held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.joint_greedy import CoupledGreedy, MyopicBestResponse
from refork.envs.graph_game.local_scores import local_scores


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
    """Each operator raises what would earn it most by its own nodes alone, as if all that it offers were used."""

    def moves(self, game: Game) -> np.ndarray:
        site, node, left = game.batch.site, game.batch.node, game.horizon - game.t
        useful = np.minimum(game.expected[game.t :].mean(0), np.maximum(0.0, site["pool"] - game.state.covered) / left)
        limits = [np.minimum(useful, site["site_capacity"] * (game.state.site_level + more)) for more in (0, 1)]
        demand = left * (site["price"] * (limits[1] - limits[0]) - site["site_upkeep"]) - site["site_capital"]
        earned = node["tariff"] * node["node_capacity"] - node["node_upkeep"]
        supply = left * earned - game.next_node_capital()
        return np.stack([_best_or_pass(g, legal) for g, legal in zip((demand, supply), game.legal(), strict=True)], 1)


class OneHopGreedy:
    """Decentralised: both operators see their own nodes and the coupled ones, and choose by the same local scores.

    They open the pair of the highest score, unless the best two builds that use what is idle bring more together.
    """

    def moves(self, game: Game) -> np.ndarray:
        scores, games = local_scores(game), np.arange(game.batch.games)
        alone = [scores.site, scores.node]
        best = [s.max(1) for s in alone]
        singles = np.stack([np.where(b > 0, s.argmax(1), s.shape[1]) for s, b in zip(alone, best, strict=True)], 1)
        pair, pair_score = _best_pair(scores.pair, game)
        together = np.maximum(best[0], 0) + np.maximum(best[1], 0)
        opens = (pair_score > together)[:, None]
        return np.where(opens, pair[games], singles)


def _best_pair(score: np.ndarray, game: Game) -> tuple[np.ndarray, np.ndarray]:
    """Ends (B, 2) of each game's pair of the highest score, and that (B,)."""
    first, second = game.topology.pairs
    owner = first // game.batch.sites
    order = np.lexsort((-score, owner))
    best = order[np.searchsorted(owner[order], np.arange(game.batch.games))]
    return np.stack([first[best] % game.batch.sites, second[best] % game.batch.nodes], 1), score[best]


def _best_or_pass(gain: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """(B,): the legal build of the greatest gain (B, n), or pass where none gains."""
    gain = np.where(legal[:, :-1], gain, -np.inf)
    return np.where(gain.max(1) > 0, gain.argmax(1), gain.shape[1])


HEURISTICS: dict[str, Callable[[int], Heuristic]] = {
    "pass": lambda seed: Pass(),
    "random": Random,
    "own_greedy": lambda seed: OwnGreedy(),
    "one_hop_greedy": lambda seed: OneHopGreedy(),
    "coupled_greedy": lambda seed: CoupledGreedy(),
    "myopic_best_response": lambda seed: MyopicBestResponse(),
}
"""By name, made from a seed; only `random` uses it."""
