"""What a round pays to whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.graph_game.batch import Batch


@dataclass(frozen=True)
class Payoff:
    """Of one round of B games."""

    rewards: np.ndarray
    """(B, 2): what the operators are to maximise, by the game's alignment."""
    own: np.ndarray
    """(B, 2): what they really earn."""

    @property
    def welfare(self) -> np.ndarray:
        """(B,): joint payoff."""
        return self.own.sum(1)


def capital_cost(batch: Batch, next_node_capital: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """(B, 2): capital of the moves (B, 2); 0 for a pass."""
    games = np.arange(batch.games)
    free = np.zeros((batch.games, 1))
    site = np.concatenate([batch.site["site_capital"], free], 1)[games, actions[:, 0]]
    node = np.concatenate([next_node_capital, free], 1)[games, actions[:, 1]]
    return np.stack([site, node], 1)


def demand_income(batch: Batch, early: np.ndarray, late: np.ndarray) -> np.ndarray:
    """(B,): price of what sites were served before and beyond their knees, each (B, N)."""
    return (batch.site["price"] * early + batch.site["late_price"] * late).sum(1)


def supply_income(batch: Batch, through: np.ndarray, node_level: np.ndarray, waste: np.ndarray) -> np.ndarray:
    """(B,): tariffs, less what take-or-pay contracts and expired stock cost; `waste` (B, M) units."""
    node = batch.node
    short = np.maximum(0.0, node["take"] * node_level - through)
    return (node["tariff"] * through - node["take_price"] * short - node["waste_price"] * waste).sum(1)


def upkeep(batch: Batch, site_level: np.ndarray, node_level: np.ndarray) -> np.ndarray:
    """(B, 2), of levels (B, N) and (B, M)."""
    site = (batch.site["site_upkeep"] * site_level).sum(1)
    return np.stack([site, (batch.node["node_upkeep"] * node_level).sum(1)], 1)


def aligned(income: np.ndarray, costs: np.ndarray, alignment: str) -> Payoff:
    """Rewards from incomes and costs (B, 2).

    general: each its own. identical: both half of the welfare. potential: both the joint income, each less its own
    costs, which depend on its own moves alone: the welfare is an exact potential then.
    """
    own = income - costs
    if alignment == "identical":
        return Payoff(np.repeat(own.sum(1, keepdims=True) / 2, 2, 1), own)
    if alignment == "potential":
        return Payoff(income.sum(1, keepdims=True) - costs, own)
    return Payoff(own, own)
