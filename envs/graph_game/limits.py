"""Limits of a user's supply network, as rows: from the edges of a forest, and from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.graph_game.rules import COEFFICIENT, LIMIT
from refork.envs.graph_game.settings import Settings, checked
from refork.envs.graph_game.side import Side
from refork.envs.graph_game.tables import Record, read_csv

Entry = tuple[int, int, float]
"""Row, node, coefficient."""


def supply_limits(path: Path, supply: Side, settings: Settings) -> dict[str, np.ndarray]:
    """The row fields of an Instance; `path` may be missing. Raises BadInput."""
    limits, entries = _edge_rows(supply)
    if path.exists():
        _add_rows(limits, entries, read_csv(path, ("row", "node", "limit"), settings.ignore), supply, settings)
    entries.sort(key=lambda entry: entry[0])
    row, node, coefficient = zip(*entries, strict=True) if entries else ((), (), ())
    return {
        "row_limit": np.array(limits, np.float64),
        "row_index": np.array(row, np.int64),
        "row_node": np.array(node, np.int64),
        "row_coefficient": np.array(coefficient, np.float64),
    }


def _edge_rows(supply: Side) -> tuple[list[float], list[Entry]]:
    """One row per edge with a limit: all that flows to the nodes below it."""
    limits: list[float] = []
    entries: list[Entry] = []
    limited = np.flatnonzero(np.isfinite(supply.edge_limit))
    if len(limited):
        below = _below(supply)
        for edge in limited:
            entries += [(len(limits), node, 1.0) for node in sorted(below[int(supply.edges[edge, 1])])]
            limits.append(float(supply.edge_limit[edge]))
    return limits, entries


def _below(supply: Side) -> list[set[int]]:
    """Each node of a forest with all nodes downstream of it."""
    parent: dict[int, int] = {}
    for place, (up, down) in zip(supply.edge_places, supply.edges.tolist(), strict=True):
        if down in parent:
            raise BadInput(
                f"{place}: its target has an upstream edge already; limits need a tree, or supply_limits.csv"
            )
        parent[down] = up
    below: list[set[int]] = [set() for _ in supply.index]
    for node in range(len(below)):
        at: int | None = node
        while at is not None and node not in below[at]:
            below[at].add(node)
            at = parent.get(at)
    return below


def _add_rows(
    limits: list[float], entries: list[Entry], records: list[Record], supply: Side, settings: Settings
) -> None:
    rows: dict[str, int] = {}
    seen: set[tuple[int, int]] = set()
    for record in records:
        name, node = str(record.values["row"]), str(record.values["node"])
        limit = checked(record.where, LIMIT, record.values["limit"]) / settings.units[LIMIT.unit]
        if node not in supply.index:
            raise BadInput(
                f"{record.where}: node {node!r} is no node of {supply.where}; add it there, or correct the id"
            )
        if name not in rows:
            rows[name] = len(limits)
            limits.append(limit)
        if limits[rows[name]] != limit:
            raise BadInput(
                f"{record.where}: another limit than before in row {name!r}; give all of its entries the same"
            )
        row, number = rows[name], supply.index[node]
        if (row, number) in seen:
            raise BadInput(f"{record.where}: node {node!r} is in row {name!r} already; add its coefficients up")
        seen.add((row, number))
        coefficient = checked(record.where, COEFFICIENT, record.values.get("coefficient", COEFFICIENT.default))
        entries.append((row, number, coefficient))
