"""What the operators of all domains start from; a domain changes what is its own."""

from __future__ import annotations

from typing import Any

import numpy as np


def varied(rng: np.random.Generator, count: int, mean: float, spread: float = 0.25) -> np.ndarray:
    """(count,) around `mean`, uniform within the relative `spread`."""
    return mean * rng.uniform(1 - spread, 1 + spread, count)


def operators(rng: np.random.Generator, sites: int, nodes: int, horizon: int) -> dict[str, Any]:
    """Fields of an Instance: demand that grows and swings, prices, costs, budgets for about four builds in five rounds.

    One level of a site and of a node bring about 1.6 a round where they serve, and cost 5.7 once.
    """
    season = 1 + 0.02 * np.arange(horizon) + 0.15 * np.sin(np.arange(horizon) * 2 * np.pi / 10)
    site_capital, node_capital = varied(rng, sites, 2.2), varied(rng, nodes, 3.5)
    return {
        "demand": season[:, None] * rng.uniform(0.6, 3.0, sites),
        "price": varied(rng, sites, 1.0, 0.3),
        "late_price": np.zeros(sites),
        "knee": np.full(sites, np.inf),
        "pool": np.full(sites, np.inf),
        "site_capacity": varied(rng, sites, 1.0),
        "site_capital": site_capital,
        "site_upkeep": varied(rng, sites, 0.06),
        "tariff": varied(rng, nodes, 0.6),
        "node_capacity": varied(rng, nodes, 1.3),
        "node_capital": node_capital,
        "node_start": np.zeros(nodes),
        "node_upkeep": varied(rng, nodes, 0.08),
        "take": np.zeros(nodes),
        "take_price": np.zeros(nodes),
        "budget": 0.8 * horizon * np.array([site_capital.mean(), node_capital.mean()]),
    }
