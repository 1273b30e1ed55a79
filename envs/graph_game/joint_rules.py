"""Central rules: joint moves tried on copies of the game as it stands, all candidates of all games in one batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.local_rules import OneHopGreedy
from refork.envs.graph_game.local_scores import LocalScores, local_scores
from refork.envs.graph_game.outlook import Average, average_round
from refork.envs.graph_game.own_rules import Heuristic
from refork.envs.graph_game.payoff import capital_cost
from refork.envs.graph_game.ranking import best_columns, best_few, best_of

PAIRS = 48
"""Coupled pairs tried per game, the most promising by local score."""
SINGLES = 6
"""Single builds of each operator tried with one another."""


def outlooks(game: Game, now: Average, owner: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """(K, 2): payoffs of both operators over the rounds left after the moves (K, 2) in games `owner` (K,)."""
    after = now.take(owner).raised(actions)
    capital = capital_cost(after.batch, game.next_node_capital()[owner], actions)
    return after.worth(*after.cleared()) - capital


def candidates(game: Game, scores: LocalScores, pairs: int, singles: int) -> tuple[np.ndarray, np.ndarray]:
    """Joint moves worth trying (K, 2) and their games (K,): by local score the best coupled pairs, and all of the best
    single builds of both operators with one another; passes included."""
    first, second = game.topology.pairs
    chosen, owner = best_few(scores.pair, first // game.batch.sites, game.batch.games, pairs)
    opened = np.stack([first[chosen] % game.batch.sites, second[chosen] % game.batch.nodes], 1)
    own, partner = best_columns(scores.site, singles), best_columns(scores.node, singles)
    grid = np.stack(np.broadcast_arrays(own[:, :, None], partner[:, None, :]), -1).reshape(game.batch.games, -1, 2)
    mixed, place = np.nonzero((grid >= 0).all(-1))
    return np.concatenate([owner, mixed]), np.concatenate([opened, grid[mixed, place]])


class CoupledGreedy:
    """The joint move that most raises the welfare of the rounds left, cleared as a whole."""

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        owner, actions = candidates(game, local_scores(game), PAIRS, SINGLES)
        welfare = outlooks(game, average_round(game), owner, actions).sum(1)
        return actions[best_of(welfare, owner, game.batch.games)]


@dataclass(frozen=True)
class LookaheadGreedy:
    """The best few joint moves by outlook, each tried on a fork of the game that a quick rule plays to the end.

    One step of policy improvement (a rollout) on that rule. Demand beyond the coming round is as expected, not drawn.
    """

    tried: int = 12
    quick: Heuristic = field(default_factory=OneHopGreedy)

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        owner, actions = candidates(game, local_scores(game), PAIRS, SINGLES)
        outlook = outlooks(game, average_round(game, exact=False), owner, actions).sum(1)
        chosen, owner = best_few(outlook, owner, game.batch.games, self.tried)
        actions = actions[chosen]
        fork = game.fork(owner)
        fork.clearing = "prices"
        fork.demand = np.concatenate([fork.demand[: game.t + 1], fork.expected[game.t + 1 :]])
        welfare = fork.step(actions).welfare
        while not fork.ended:
            welfare = welfare + fork.step(self.quick.moves(fork)).welfare
        return actions[best_of(welfare, owner, game.batch.games)]


@dataclass(frozen=True)
class MyopicBestResponse:
    """Best responses in turn to the other's move of this round, each by its own payoff if nothing more were built.

    They start from the pair that the central greedy opens: from pass no build pays alone, and both would stay there.
    """

    builds: int = 24
    """Own moves tried per operator, the most promising by local score."""
    sweeps: int = 2

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        now, scores = average_round(game), local_scores(game)
        moves = CoupledGreedy().moves(game)
        own = [best_columns(score, self.builds) for score in _reach(game, scores)]
        for _ in range(self.sweeps):
            for operator in (0, 1):
                options = np.concatenate([moves[:, operator, None], own[operator]], 1)
                owner, place = np.nonzero(options >= 0)
                actions = moves[owner]
                actions[:, operator] = options[owner, place]
                payoff = outlooks(game, now, owner, actions)[:, operator]
                moves = actions[best_of(payoff, owner, game.batch.games)]
        return moves


def _reach(game: Game, scores: LocalScores) -> tuple[np.ndarray, np.ndarray]:
    """Score of each site (B, N) and node (B, M): alone or as an end of its best pair."""
    site, node = scores.site.copy(), scores.node.copy()
    first, second = game.topology.pairs
    np.maximum.at(site.reshape(-1), first, scores.pair)
    np.maximum.at(node.reshape(-1), second, scores.pair)
    return site, node
