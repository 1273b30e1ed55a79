"""What levels are worth from here on if nothing more is built: every round left is taken to be the average one.

Totals over the rounds left are what counts for pools, knees and waste, so the average round gets an equal share of
them; this is exact where demand is constant and stock never runs out of order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from refork.envs.graph_game.batch import Batch
from refork.envs.graph_game.clearing import Round, clear
from refork.envs.graph_game.exact import clear_exactly
from refork.envs.graph_game.payoff import demand_income, supply_income, upkeep

if TYPE_CHECKING:
    from refork.envs.graph_game.game import Game


@dataclass(frozen=True)
class Average:
    """The average round of those left, of B games as they stand; per round, in units."""

    batch: Batch
    rounds: int
    """Left, the coming one included."""
    site_level: np.ndarray
    """(B, N)"""
    node_level: np.ndarray
    """(B, M)"""
    useful: np.ndarray
    """(B, N): what a site could use: its demand, its share of the pool."""
    knee: np.ndarray
    """(B, N): of it at the full price."""
    stock: np.ndarray
    """(B, M): what is there already."""
    exact: bool
    """Cleared exactly."""

    def take(self, games: np.ndarray) -> Average:
        """Those rows (G,), which may repeat."""
        arrays = {name: value[games] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, batch=self.batch.take(games), **arrays)

    def raised(self, actions: np.ndarray) -> Average:
        """After the moves (B, 2)."""
        site = self.site_level + (np.arange(self.batch.sites) == actions[:, :1])
        node = self.node_level + (np.arange(self.batch.nodes) == actions[:, 1:])
        return replace(self, site_level=site, node_level=node)

    def site_limit(self, more: int = 0) -> np.ndarray:
        """(B, N): what sites could be served, with that many levels more."""
        return np.minimum(self.useful, self.batch.site["site_capacity"] * (self.site_level + more))

    def node_limit(self, more: int = 0) -> np.ndarray:
        """(B, M)"""
        return self.stock + self.batch.node["node_capacity"] * (self.node_level + more)

    def cleared(self) -> tuple[np.ndarray, np.ndarray]:
        """Served (B, N) and through (B, M) of the average round."""
        site, node = self.batch.site, self.batch.node
        first, second = self.batch.topology.pairs
        value = site["price"].ravel()[first] + node["tariff"].ravel()[second]
        now = Round(self.site_limit(), self.node_limit(), value, self.knee, site["price"] - site["late_price"])
        flow = (clear_exactly if self.exact else clear)(self.batch, now)
        served = np.bincount(first, flow, self.site_level.size).reshape(self.site_level.shape)
        return served, np.bincount(second, flow, self.node_level.size).reshape(self.node_level.shape)

    def worth(self, served: np.ndarray, through: np.ndarray) -> np.ndarray:
        """(B, 2): what the operators earn in all the rounds left, capital for new levels not included."""
        early = np.minimum(served, self.knee)
        kept = self.batch.shelf_life[:, None] > 0
        waste = np.where(kept, np.maximum(0.0, self.node_limit() - through), 0.0)
        supply = supply_income(self.batch, through, self.node_level, waste)
        income = np.stack([demand_income(self.batch, early, served - early), supply], 1)
        return self.rounds * (income - upkeep(self.batch, self.site_level, self.node_level))


def average_round(game: Game, *, exact: bool | None = None) -> Average:
    """Of the rounds that `game` has left: the coming one's demand is known, later ones are as expected.

    `exact` replaces the game's own way of clearing.
    """
    state, site, t = game.state, game.batch.site, game.t
    rounds = game.horizon - t
    demand = (game.demand[t] + game.expected[t + 1 :].sum(0)) / rounds
    pool = np.maximum(0.0, site["pool"] - state.covered) / rounds
    return Average(
        game.batch,
        rounds,
        state.site_level,
        state.node_level,
        np.minimum(demand, pool),
        np.maximum(0.0, site["knee"] - state.covered) / rounds,
        state.stock.sum(-1) / rounds,
        game.clearing == "exact" if exact is None else exact,
    )
