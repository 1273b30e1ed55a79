"""A user's graph in numbers: node columns by the rules, edges by index, places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.graph_game.check import check_connected, check_simple
from refork.envs.graph_game.rules import LIMIT, Rule
from refork.envs.graph_game.settings import Settings, checked, to_number
from refork.envs.graph_game.tables import GraphRecords, Record


@dataclass(frozen=True)
class Side:
    """One operator's graph, in the game's units."""

    where: str
    index: dict[str, int]
    """Number of each node by its id."""
    columns: dict[str, np.ndarray]
    """Fields of an Instance, each (N,)."""
    edges: np.ndarray
    """(E, 2), as the file has them."""
    edge_limit: np.ndarray
    """(E,), inf where there is none."""
    edge_places: tuple[str, ...]
    """Where each edge stands in the files."""
    places: np.ndarray
    """(N, 2); (0, 2) when the files have none."""


def make_side(records: GraphRecords, rules: Sequence[Rule], settings: Settings, defaults: dict[str, Any]) -> Side:
    """Raises BadInput."""
    if not records.nodes:
        raise BadInput(f"{records.where}: no nodes; a game needs at least one on each side")
    index = index_nodes(records.nodes)
    _check_columns(records.nodes, {"id", "x", "y", *(rule.column for rule in rules)})
    _check_columns(records.edges, {"source", "target", LIMIT.column})
    edges = to_indices(records.edges, ("source", "target"), (index, index), (records.where, records.where))
    names, edge_places = [repr(name) for name in index], tuple(r.where for r in records.edges)
    check_simple(edge_places, edges, names)
    check_connected(records.where, edges, names)
    columns = {rule.field: _column(records.nodes, rule, settings, defaults.get(rule.column)) for rule in rules}
    limit = _column(records.edges, LIMIT, settings, None)
    return Side(records.where, index, columns, edges, limit, edge_places, _places(records.nodes))


def index_nodes(nodes: Sequence[Record]) -> dict[str, int]:
    """Number of each node by its id. Raises BadInput for one that occurs twice."""
    index: dict[str, int] = {}
    for record in nodes:
        name = str(record.values["id"])
        if name in index:
            raise BadInput(f"{record.where}: the id {name!r} occurs twice; ids must differ")
        index[name] = len(index)
    return index


def _check_columns(records: Sequence[Record], known: set[str]) -> None:
    for record in records:
        for name in record.values:
            if name not in known:
                others = ", ".join(sorted(known))
                raise BadInput(
                    f"{record.where}: unknown column {name!r}; there are: {others}. "
                    f"To leave it out, write ignore = [{name!r}] in game.toml"
                )


def _column(records: Sequence[Record], rule: Rule, settings: Settings, default: Any) -> np.ndarray:
    """(N,) in the game's units; `default`, in the files' units, goes before the rule's."""
    unit = settings.units[rule.unit]
    values = []
    for record in records:
        given = record.values.get(rule.column, default)
        values.append(rule.default if given is None else checked(record.where, rule, given) / unit)
    return np.array(values, np.float64)


def to_indices(
    records: Sequence[Record],
    columns: tuple[str, str],
    indices: tuple[dict[str, int], dict[str, int]],
    graphs: tuple[str, str],
) -> np.ndarray:
    """(E, 2) from the ids in two columns. Raises BadInput for an id that its graph does not have."""
    ends = np.zeros((len(records), 2), np.int64)
    for row, record in enumerate(records):
        for end, (column, index, graph) in enumerate(zip(columns, indices, graphs, strict=True)):
            name = str(record.values[column])
            if name not in index:
                raise BadInput(
                    f"{record.where}: {column} {name!r} is no node of {graph}; add it there, or correct the id"
                )
            ends[row, end] = index[name]
    return ends


def _places(nodes: Sequence[Record]) -> np.ndarray:
    if not any({"x", "y"} & set(record.values) for record in nodes):
        return np.zeros((0, 2))
    places = []
    for record in nodes:
        if not {"x", "y"} <= set(record.values):
            raise BadInput(f"{record.where}: x or y is missing; give both to all nodes of the graph, or to none")
        place = [to_number(record.where, axis, record.values[axis]) for axis in ("x", "y")]
        if not np.isfinite(place).all():
            raise BadInput(f"{record.where}: x, y are {place}; give finite numbers")
        places.append(place)
    return np.array(places)
