"""Who is connected to whom in a batch of games, as flat index lists that games, records and networks share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Topology:
    """Who is connected to whom in B games. Node (b, i) has the flat index b * N + i."""

    site_mask: np.ndarray
    """(B, N), bool: real, not padding."""
    node_mask: np.ndarray
    """(B, M), bool."""
    pairs: np.ndarray
    """(2, P), int64: coupling, flat site and flat supply node; sorted by site."""
    roads: np.ndarray
    """(2, E), int64: undirected edges of the demand graphs, flat sites, each once."""
    links: np.ndarray
    """(2, F), int64: edges of the supply graphs, flat nodes, each once."""

    def take(self, games: np.ndarray) -> Topology:
        """The topology of those games (G,), in that order; a game may be named more than once."""
        sites, nodes = self.site_mask.shape[1], self.node_mask.shape[1]
        return Topology(
            self.site_mask[games],
            self.node_mask[games],
            _take_edges(self.pairs, games, len(self.site_mask), sites, nodes),
            _take_edges(self.roads, games, len(self.site_mask), sites, sites),
            _take_edges(self.links, games, len(self.site_mask), nodes, nodes),
        )


def _take_edges(edges: np.ndarray, games: np.ndarray, count: int, left: int, right: int) -> np.ndarray:
    """Edges (2, E) of the chosen games, renumbered; edges of a game are contiguous in `edges`."""
    entries, place = entries_of_games(edges[0] // left, games, count)
    shift = place - games[place]
    return edges[:, entries] + np.stack([shift * left, shift * right])


def entries_of_games(owner: np.ndarray, games: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the entries of the chosen games (G,) lie in a list of `count` games' entries, and the new game of each.

    `owner`: game of each entry, ascending.
    """
    starts = np.searchsorted(owner, np.arange(count + 1))
    sizes = (starts[1:] - starts[:-1])[games]
    place = np.repeat(np.arange(len(games)), sizes)
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return starts[:-1][games][place] + within, place
