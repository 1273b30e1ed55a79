"""Vaccination sites (demand) supplied by depots (supply).

A depot is allotted doses every round for each level; they keep for a few rounds and cost a penalty when they expire.
The first doses at a site go to those at high risk and count more: coverage is concave, timing matters. Depots of a
region share its transport. All numbers are this project's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from refork.envs.graph_game.domains.common import operators, varied
from refork.envs.graph_game.networks import tree_links

REGION = 8
"""Depots of a region; the first is its hub."""
SHELF_LIFE = 3
WASTE_PRICE = 0.3


def build(rng: np.random.Generator, sites: int, nodes: int, horizon: int) -> dict[str, Any]:
    """Fields of an Instance that this domain decides."""
    own = np.arange(nodes) % REGION
    region = np.arange(nodes) // REGION
    population = rng.uniform(6.0, 24.0, sites)
    priority = varied(rng, sites, 1.4, 0.2)
    return {
        **operators(rng, sites, nodes, horizon),
        "demand": np.tile(0.15 * population, (horizon, 1)),
        "price": priority,
        "late_price": 0.5 * priority,
        "knee": 0.4 * population,
        "pool": population,
        "tariff": varied(rng, nodes, 0.5),
        "links": tree_links(np.where(own == 0, -1, np.arange(nodes) - own)),
        "row_index": region,
        "row_node": np.arange(nodes),
        "row_coefficient": np.ones(nodes),
        "row_limit": varied(rng, int(region[-1]) + 1, 5.0),
        "shelf_life": SHELF_LIFE,
        "waste_price": WASTE_PRICE,
        "node_place": _places(region, own),
    }


def _places(region: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Depots around their hub, regions on a grid; (M, 2) in the unit square."""
    side = int(np.ceil(np.sqrt(region[-1] + 1)))
    centre = np.stack([region % side + 0.5, region // side + 0.5], 1)
    angle = own * 2 * np.pi / (REGION - 1)
    around = 0.35 * np.stack([np.cos(angle), np.sin(angle)], 1)
    return (centre + np.where(own[:, None] == 0, 0.0, around)) / side
