"""Central rules: joint moves tried on copies of the game as it stands, all candidates of all games in one batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.local_scores import LocalScores, local_scores
from refork.envs.graph_game.outlook import Average, average_round
from refork.envs.graph_game.payoff import capital_cost


def outlooks(game: Game, now: Average, owner: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """(K, 2): payoffs of both operators over the rounds left after the moves (K, 2) in games `owner` (K,)."""
    after = now.take(owner).raised(actions)
    capital = capital_cost(after.batch, game.next_node_capital()[owner], actions)
    return after.worth(*after.cleared()) - capital


def candidates(game: Game, scores: LocalScores, pairs: int, singles: int) -> tuple[np.ndarray, np.ndarray]:
    """Joint moves worth trying (K, 2) and their games (K,): by local score the best coupled pairs, and all of the best
    single builds of both operators with one another; passes included."""
    first, second = game.topology.pairs
    chosen, owner = _best_pairs(scores.pair, first // game.batch.sites, game.batch.games, pairs)
    opened = np.stack([first[chosen] % game.batch.sites, second[chosen] % game.batch.nodes], 1)
    own, partner = _best_builds(scores.site, singles), _best_builds(scores.node, singles)
    grid = np.stack(np.broadcast_arrays(own[:, :, None], partner[:, None, :]), -1).reshape(game.batch.games, -1, 2)
    mixed, place = np.nonzero((grid >= 0).all(-1))
    return np.concatenate([owner, mixed]), np.concatenate([opened, grid[mixed, place]])


def _best_pairs(score: np.ndarray, owner: np.ndarray, games: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Up to that many legal pairs of each game by score (P,), and the game of each."""
    order = np.lexsort((-score, owner))
    starts = np.searchsorted(owner[order], np.arange(games))
    rank = np.arange(len(order)) - starts[owner[order]]
    chosen = order[(rank < count) & np.isfinite(score[order])]
    return chosen, owner[chosen]


def _best_builds(score: np.ndarray, count: int) -> np.ndarray:
    """(B, count + 1): pass and the best legal builds by score (B, n); -1 where there are fewer."""
    with_pass = np.concatenate([score, np.full((len(score), 1), np.inf)], 1)
    top = np.argsort(-with_pass, 1, kind="stable")[:, : count + 1]
    legal = np.isfinite(np.take_along_axis(score, np.minimum(top, score.shape[1] - 1), 1)) | (top == score.shape[1])
    return np.where(legal, top, -1)


def best_of(value: np.ndarray, owner: np.ndarray, games: int) -> np.ndarray:
    """(B,): which entry of each game has the greatest value (K,)."""
    order = np.lexsort((-value, owner))
    return order[np.searchsorted(owner[order], np.arange(games))]


@dataclass(frozen=True)
class CoupledGreedy:
    """The joint move that most raises the welfare of the rounds left, cleared as a whole."""

    pairs: int = 48
    """Tried per game, the most promising by local score; as are `singles` of each operator."""
    singles: int = 6

    def moves(self, game: Game) -> np.ndarray:
        """Legal moves (B, 2)."""
        owner, actions = candidates(game, local_scores(game), self.pairs, self.singles)
        welfare = outlooks(game, average_round(game), owner, actions).sum(1)
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
        own = [_best_builds(score, self.builds) for score in _reach(game, scores)]
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
