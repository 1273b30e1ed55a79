"""Charging stations (demand) on a radial distribution grid (supply).

The grid repeats the published 33-bus test feeder (Baran and Wu, IEEE Trans. Power Delivery 4(2), 1989: topology and
resistances); its limits and all money are this project's. Lines have limits, and the voltage at the end of every
lateral stays above 0.95 by the linear model (LinDistFlow with active power alone).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from refork.envs.graph_game.domains.common import operators, varied
from refork.envs.graph_game.networks import paths_to_root, subtree_sums, tree_links

PARENT = (-1, *range(16), 0, *range(17, 20), 1, *range(21, 23), 4, *range(24, 31))
"""Upstream bus of buses 2 to 33, counted from 0; bus 1 is the substation."""
RESISTANCE = (
    *(0.0922, 0.4930, 0.3660, 0.3811, 0.8190, 0.1872, 0.7114, 1.0300, 1.0440, 0.1966, 0.3744),
    *(1.4680, 0.5416, 0.5910, 0.7463, 1.2890, 0.7320, 0.1640, 1.5042, 0.4095, 0.7089, 0.4512),
    *(0.8980, 0.8960, 0.2030, 0.2842, 1.0590, 0.8042, 0.5075, 0.9744, 0.3105, 0.3410),
)
"""Ohm, of the line into each of these buses."""
BUSES = len(PARENT)
DROP_PER_OHM = 0.0009
"""Relative voltage drop of one service unit over one ohm."""
VOLTAGE_FLOOR = 0.95


def build(rng: np.random.Generator, sites: int, nodes: int, horizon: int) -> dict[str, Any]:
    """Fields of an Instance that this domain decides."""
    own = np.arange(nodes) % BUSES
    parent = np.array(PARENT)[own]
    parent = np.where(parent >= 0, parent + np.arange(nodes) - own, -1)
    row, node, coefficient = subtree_sums(parent)
    below = np.bincount(row, minlength=nodes)
    drop = _voltage_rows(parent, np.array(RESISTANCE)[own])
    ends = len(np.unique(drop[0]))
    return {
        **operators(rng, sites, nodes, horizon),
        "links": tree_links(parent),
        "row_index": np.concatenate([row, drop[0] + nodes]),
        "row_node": np.concatenate([node, drop[1]]),
        "row_coefficient": np.concatenate([coefficient, drop[2]]),
        "row_limit": np.concatenate([varied(rng, nodes, 2.0) + 0.25 * below, np.full(ends, 1 - VOLTAGE_FLOOR)]),
        "node_place": _places(parent, own),
    }


def _voltage_rows(parent: np.ndarray, resistance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, one per end of a lateral: the drop there is the resistance of the common path times the load."""
    paths = [set(path) for path in paths_to_root(parent)]
    ends = sorted(set(range(len(parent))) - set(map(int, parent)))
    entries = []
    for row, end in enumerate(ends):
        for node, path in enumerate(paths):
            if common := path & paths[end]:
                entries.append((row, node, DROP_PER_OHM * resistance[sorted(common)].sum()))
    rows, nodes, drops = (np.array(v) for v in zip(*entries, strict=True))
    return rows.astype(np.int64), nodes.astype(np.int64), drops.astype(np.float64)


def _places(parent: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Trunk along x, laterals beside it, one feeder above the other; (M, 2) in the unit square."""
    depth = np.array([len(path) for path in paths_to_root(parent)])
    lateral = np.searchsorted([17, 21, 24], own, side="right")
    feeder = np.arange(len(parent)) // BUSES
    y = feeder + np.array([0.5, 0.2, 0.8, 0.35])[lateral]
    return np.stack([depth / (depth.max() + 1), y / (feeder.max() + 1)], 1)
