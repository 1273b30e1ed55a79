"""B instances side by side: numbers padded to (B, N) and (B, M), graphs as flat index lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from refork.envs.graph_game.instance import Instance
from refork.envs.topology import Topology, entries_of_games

SITE_FIELDS = ("price", "late_price", "knee", "pool", "site_capacity", "site_capital", "site_upkeep")
NODE_FIELDS = (
    *("tariff", "node_capacity", "node_capital", "node_start", "node_upkeep", "take", "take_price", "waste_price"),
)


@dataclass(frozen=True)
class Rows:
    """Limits of the supply networks: flat row, flat node, coefficient of each entry; limits of all rows."""

    index: np.ndarray
    node: np.ndarray
    coefficient: np.ndarray
    limit: np.ndarray
    owner: np.ndarray
    """(R,): game of each row, ascending."""


@dataclass(frozen=True)
class Batch:
    """Numbers of B games. Padding has capacity 0 and infinite capital, so nothing is ever built or served there."""

    topology: Topology
    road_limit: np.ndarray
    """(E,) in the order of topology.roads."""
    rows: Rows
    site: dict[str, np.ndarray]
    """SITE_FIELDS, each (B, N)."""
    node: dict[str, np.ndarray]
    """NODE_FIELDS, each (B, M); `waste_price` is the game's."""
    levels: np.ndarray
    """(B,)"""
    budget: np.ndarray
    """(B, 2)"""
    shelf_life: np.ndarray
    """(B,), int."""
    horizon: int

    @property
    def games(self) -> int:
        return len(self.levels)

    @property
    def sites(self) -> int:
        return self.topology.site_mask.shape[1]

    @property
    def nodes(self) -> int:
        return self.topology.node_mask.shape[1]

    def take(self, games: np.ndarray) -> Batch:
        """Those games (G,), in that order, repeated where named again."""
        roads, rows = self.topology.roads, self.rows
        road_entries, _ = entries_of_games(roads[0] // self.sites, games, self.games)
        return replace(
            self,
            topology=self.topology.take(games),
            road_limit=self.road_limit[road_entries],
            rows=_take_rows(rows, games, self.games, self.nodes),
            site={name: value[games] for name, value in self.site.items()},
            node={name: value[games] for name, value in self.node.items()},
            levels=self.levels[games],
            budget=self.budget[games],
            shelf_life=self.shelf_life[games],
        )


def _take_rows(rows: Rows, games: np.ndarray, count: int, nodes: int) -> Rows:
    chosen, owner = entries_of_games(rows.owner, games, count)
    first_row = np.searchsorted(rows.owner, np.arange(count))
    new_first = np.searchsorted(owner, np.arange(len(games)))
    entries, place = entries_of_games(rows.node // nodes, games, count)
    return Rows(
        rows.index[entries] - first_row[games][place] + new_first[place],
        rows.node[entries] + (place - games[place]) * nodes,
        rows.coefficient[entries],
        rows.limit[chosen],
        owner,
    )


def stack(instances: Sequence[Instance]) -> Batch:
    """Raises ValueError when the instances differ in their horizon."""
    horizons = {instance.horizon for instance in instances}
    if len(horizons) != 1:
        raise ValueError(f"games of one batch must have one horizon, got {sorted(horizons)}")
    sites, nodes = max(i.sites for i in instances), max(i.nodes for i in instances)
    fill = {"site_capital": np.inf, "node_capital": np.inf}
    offsets = np.cumsum([0, *(len(i.row_limit) for i in instances)])
    topology = Topology(
        _pad([np.ones(i.sites, np.bool_) for i in instances], sites, False),
        _pad([np.ones(i.nodes, np.bool_) for i in instances], nodes, False),
        _flat([i.pairs for i in instances], sites, nodes),
        _flat([i.roads for i in instances], sites, sites),
        _flat([i.links for i in instances], nodes, nodes),
    )
    rows = Rows(
        np.concatenate([i.row_index + offset for i, offset in zip(instances, offsets[:-1], strict=True)]),
        np.concatenate([i.row_node + b * nodes for b, i in enumerate(instances)]),
        np.concatenate([i.row_coefficient for i in instances]),
        np.concatenate([i.row_limit for i in instances]),
        np.repeat(np.arange(len(instances)), np.diff(offsets)),
    )
    waste = [np.full(i.nodes, i.waste_price) for i in instances]
    return Batch(
        topology,
        np.concatenate([i.road_limit for i in instances]),
        rows,
        {name: _pad([getattr(i, name) for i in instances], sites, fill.get(name, 0.0)) for name in SITE_FIELDS},
        {
            name: _pad(
                waste if name == "waste_price" else [getattr(i, name) for i in instances], nodes, fill.get(name, 0.0)
            )
            for name in NODE_FIELDS
        },
        np.array([i.levels for i in instances]),
        np.stack([i.budget for i in instances]).astype(np.float64),
        np.array([i.shelf_life for i in instances]),
        horizons.pop(),
    )


def stack_demand(instances: Sequence[Instance], sites: int) -> np.ndarray:
    """(T, B, N) from each instance's (T, n)."""
    return np.stack([np.pad(i.demand, ((0, 0), (0, sites - i.sites))) for i in instances], 1)


def _pad(rows: Sequence[np.ndarray], width: int, fill: float | bool) -> np.ndarray:
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=fill) for row in rows])


def _flat(edges: Sequence[np.ndarray], left: int, right: int) -> np.ndarray:
    """Edge lists (E, 2) of B games into one (2, sum E) of flat indices."""
    return np.concatenate([e.reshape(-1, 2) + np.array([b * left, b * right]) for b, e in enumerate(edges)]).T.astype(
        np.int64
    )
