"""What a build would bring by what is seen at a node and at its coupled partner nodes alone.

Both operators see both ends of every pair, so both come to the same score of opening it: that is how they coordinate
without a word. What is blind here: how the whole flow would be rearranged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from refork.envs.graph_game.outlook import Average, average_round
from refork.envs.graph_game.ranking import best_of
from refork.envs.graph_game.room import node_headroom, road_room

if TYPE_CHECKING:
    from refork.envs.graph_game.game import Game


@dataclass(frozen=True)
class LocalScores:
    """Gains in welfare over the rounds left; -inf where the move is illegal."""

    pair: np.ndarray
    """(P,): raise both ends of a pair of the batch."""
    site: np.ndarray
    """(B, N): raise a site for what is idle at its nodes."""
    node: np.ndarray
    """(B, M): raise a node for the sites that wait for it."""


@dataclass(frozen=True)
class _Local:
    """Flat arrays over sites and nodes of all games."""

    game: Game
    now: Average
    served: np.ndarray
    through: np.ndarray

    def site_room(self, more: int) -> np.ndarray:
        """What more could be served, with that many levels more, roads as they were last used."""
        room = np.minimum(self.now.site_limit(more).ravel() - self.served, road_room(self.game).ravel())
        return np.maximum(0.0, room)

    def node_room(self, more: int) -> np.ndarray:
        room = np.minimum(self.now.node_limit(more).ravel() - self.through, node_headroom(self.game).ravel())
        return np.maximum(0.0, room)

    def price_of(self, site: np.ndarray, amount: np.ndarray) -> np.ndarray:
        """Paid per round for that much more at these sites."""
        fields, served = self.game.batch.site, self.served[site]
        full = np.maximum(0.0, np.minimum(amount, self.now.knee.ravel()[site] - served))
        return fields["price"].ravel()[site] * full + fields["late_price"].ravel()[site] * (amount - full)

    def worth_of(self, node: np.ndarray, amount: np.ndarray, more: int) -> np.ndarray:
        """Income and penalties saved per round for that much more through these nodes, raised by `more` levels."""
        fields = {name: value.ravel()[node] for name, value in self.game.batch.node.items()}
        level, through = self.now.node_level.ravel()[node], self.through[node]
        before = np.maximum(0.0, fields["take"] * level - through)
        after = np.maximum(0.0, fields["take"] * (level + more) - through - amount)
        kept = np.repeat(self.game.batch.shelf_life > 0, self.now.node_level.shape[1])[node]
        waste = np.where(kept, more * fields["node_capacity"] - amount, 0.0)
        return fields["tariff"] * amount + fields["take_price"] * (before - after) - fields["waste_price"] * waste

    def site_cost(self) -> np.ndarray:
        """Capital and upkeep of one more level over the rounds left; inf where it is illegal."""
        fields = self.game.batch.site
        cost = fields["site_capital"] + self.now.rounds * fields["site_upkeep"]
        return np.where(self.game.legal()[0][:, :-1], cost, np.inf).ravel()

    def node_cost(self) -> np.ndarray:
        cost = self.game.next_node_capital() + self.now.rounds * self.game.batch.node["node_upkeep"]
        return np.where(self.game.legal()[1][:, :-1], cost, np.inf).ravel()


def local_scores(game: Game) -> LocalScores:
    """Scores of the games' builds before round `game.t`."""
    now = average_round(game)
    local = _Local(game, now, game.state.served.ravel(), game.state.through.ravel())
    first, second = game.topology.pairs
    site_cost, node_cost = local.site_cost(), local.node_cost()
    site_after, node_after = local.site_room(1), local.node_room(1)
    both = np.minimum(site_after[first], node_after[second])
    pair = now.rounds * (local.price_of(first, both) + local.worth_of(second, both, 1))
    # alone: the best partner that has room now
    reached = np.minimum(site_after[first], local.node_room(0)[second])
    site = best_at(local.price_of(first, reached) + local.worth_of(second, reached, 0), first, now.site_level.size)
    fed = np.minimum(local.site_room(0)[first], node_after[second])
    node = best_at(local.price_of(first, fed) + local.worth_of(second, fed, 1), second, now.node_level.size)
    return LocalScores(
        pair - site_cost[first] - node_cost[second],
        (now.rounds * site - site_cost).reshape(now.site_level.shape),
        (now.rounds * node - node_cost).reshape(now.node_level.shape),
    )


def one_hop_moves(game: Game, scores: LocalScores) -> np.ndarray:
    """Moves (B, 2) that open the pair of the highest score, unless the best two builds alone bring more together."""
    gain = [np.maximum(0.0, score.max(1)) for score in (scores.site, scores.node)]
    alone = [
        np.where(best > 0, score.argmax(1), score.shape[1])
        for best, score in zip(gain, (scores.site, scores.node), strict=True)
    ]
    first, second = game.topology.pairs
    best = best_of(scores.pair, first // game.batch.sites, game.batch.games)
    pair = np.stack([first[best] % game.batch.sites, second[best] % game.batch.nodes], 1)
    return np.where((scores.pair[best] > gain[0] + gain[1])[:, None], pair, np.stack(alone, 1))


def best_at(score: np.ndarray, end: np.ndarray, count: int) -> np.ndarray:
    """The greatest score of the pairs (P,) at each of `count` ends; -inf where there is none."""
    best = np.full(count, -np.inf)
    np.maximum.at(best, end, score)
    return best
