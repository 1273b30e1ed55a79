"""One coupled graph game in numbers: a demand network, a supply network, who depends on whom, what things cost.

All three domains are parameters of one linear model, so that one rule clears it, one linear program bounds it and one
batched core plays it. Index conventions: i a site (0..N-1), j a supply node (0..M-1), t a round (0..T-1).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields

import numpy as np

AGENTS = ("demand", "supply")
"""Players, always in this order."""


@dataclass(frozen=True)
class Instance:
    """Units: demand and capacities in service units per round, prices in money per unit."""

    name: str
    domain: str
    levels: int
    """Highest level of a site or node (L)."""
    roads: np.ndarray
    """(E, 2) int64, i < k: undirected edges of the demand graph."""
    road_limit: np.ndarray
    """(E,): served_i + served_k of the two ends may not exceed it in a round: neighbours draw on the same demand."""
    links: np.ndarray
    """(F, 2) int64: edges of the supply graph, from upstream to downstream."""
    pairs: np.ndarray
    """(P, 2) int64, lexicographic: the coupling, site i may be served through node j."""
    demand: np.ndarray
    """(T, N): what site i could use in round t."""
    price: np.ndarray
    """(N,): paid per unit served, while the site has had less than `knee` in all."""
    late_price: np.ndarray
    """(N,): paid beyond `knee`; at most `price` (concave)."""
    knee: np.ndarray
    """(N,): units over the whole game after which `late_price` holds; inf: never."""
    pool: np.ndarray
    """(N,): units that the site can use over the whole game; inf: no limit."""
    site_capacity: np.ndarray
    """(N,): units per level and round."""
    site_capital: np.ndarray
    """(N,): one level's capital cost."""
    site_upkeep: np.ndarray
    """(N,): per level and round."""
    tariff: np.ndarray
    """(M,): the supplier's income per unit through the node."""
    node_capacity: np.ndarray
    """(M,): units per level and round; with a shelf life, what a level adds to the stock each round."""
    node_capital: np.ndarray
    """(M,)"""
    node_start: np.ndarray
    """(M,): added to the capital of the first level."""
    node_upkeep: np.ndarray
    """(M,)"""
    take: np.ndarray
    """(M,): units per level and round that must flow, or be paid for (take or pay)."""
    take_price: np.ndarray
    """(M,): money per unit short of `take`."""
    row_limit: np.ndarray
    """(R,): limits of the supply network, sum_j coefficient x through_j <= row_limit, in every round."""
    row_index: np.ndarray
    """(Q,) int64: entries of these rows, sorted by row ..."""
    row_node: np.ndarray
    """(Q,) int64: ... their node ..."""
    row_coefficient: np.ndarray
    """(Q,): ... and their coefficient, > 0."""
    budget: np.ndarray
    """(2,): what the demand and the supply operator may spend on capital."""
    shelf_life: int = 0
    """Rounds that stock keeps at a node; 0: nothing is stored, capacity not used in a round is gone."""
    waste_price: float = 0.0
    """Money per unit of stock that expires, or is left at the end."""
    site_place: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    """(N, 2): where to draw a site; empty: not known."""
    node_place: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    """(M, 2)"""
    site_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = ()

    @property
    def sites(self) -> int:
        return len(self.price)

    @property
    def nodes(self) -> int:
        return len(self.tariff)

    @property
    def horizon(self) -> int:
        return len(self.demand)

    def digest(self) -> str:
        """Content digest of all that matters to play (names and places do not), hex."""
        sha = hashlib.sha256()
        for f in fields(self):
            if f.name not in ("name", "site_place", "node_place", "site_names", "node_names"):
                value = getattr(self, f.name)
                sha.update(f"{f.name}:{getattr(value, 'shape', '')}:".encode())
                sha.update(
                    np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
                )
        return sha.hexdigest()
