"""Is an instance a game? All numbers and graphs are looked at before the first step."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.rules import BUDGET, COEFFICIENT, LIMIT, NODE_RULES, SITE_RULES, WASTE_PRICE, Rule


def check_instance(instance: Instance) -> None:
    """Raises BadInput with the first fault: which game, which node or edge, what to do."""
    sites, nodes = _names(instance.site_names, instance.sites), _names(instance.node_names, instance.nodes)
    game = f"game {instance.name!r}"
    for what, names in (("site", sites), ("supply node", nodes)):
        if not names:
            raise BadInput(f"{game}: no {what}; a game needs at least one")
    _check_whole(game, "levels", instance.levels, 1)
    _check_whole(game, "horizon", instance.horizon, 1)
    _check_whole(game, "shelf_life", instance.shelf_life, 0)
    _check_numbers(game, instance, sites, nodes)
    for what, edges, names in (("demand", instance.roads, sites), ("supply", instance.links, nodes)):
        graph = f"{game}, {what} graph"
        _check_ends(graph, edges, (names, names))
        check_simple(_numbered(f"{graph}, edge", len(edges)), edges, names)
        check_connected(graph, edges, names)
    _check_ends(f"{game}, coupling", instance.pairs, (sites, nodes))
    check_once(_numbered(f"{game}, coupling, pair", len(instance.pairs)), instance.pairs, (sites, nodes))
    check_coupled(f"{game}, coupling", instance.pairs, sites)
    _check_rows(game, instance, nodes)


def _names(names: Sequence[str], count: int) -> list[str]:
    return [repr(n) for n in names] if names else [str(i) for i in range(count)]


def _check_whole(game: str, name: str, value: float, least: int) -> None:
    if not float(value).is_integer() or value < least:
        raise BadInput(f"{game}: {name} is {value}; it must be a whole number, at least {least}")


def _check_numbers(game: str, instance: Instance, sites: list[str], nodes: list[str]) -> None:
    for rule in SITE_RULES:
        shape = (instance.horizon, len(sites)) if rule.field == "demand" else (len(sites),)
        _check_array(game, rule, getattr(instance, rule.field), shape, [f"site {s}" for s in sites])
    for rule in NODE_RULES:
        _check_array(game, rule, getattr(instance, rule.field), (len(nodes),), [f"supply node {n}" for n in nodes])
    _check_array(game, BUDGET, instance.budget, (2,), ["demand operator", "supply operator"])
    _check_array(game, WASTE_PRICE, np.array([instance.waste_price]), (1,), ["all nodes"])
    _check_array(game, LIMIT, instance.road_limit, (len(instance.roads),), _numbered("road", len(instance.roads)))
    late = np.flatnonzero(instance.late_price > instance.price)
    if len(late):
        raise BadInput(f"{game}, site {sites[late[0]]}: late_price is above price; lower it to at most the price")


def _check_array(game: str, rule: Rule, values: np.ndarray, shape: tuple[int, ...], owners: Sequence[str]) -> None:
    """The last axis of `values` runs over `owners`."""
    if values.shape != shape:
        raise BadInput(f"{game}: {rule.field} has the shape {values.shape}; it must be {shape}")
    bad = np.argwhere(~(np.isfinite(values) & (values > 0)))  # candidates; the rule knows
    for place in bad:
        if fault := rule.fault(float(values[tuple(place)])):
            when = f" in round {place[0]}" if len(place) == 2 else ""
            raise BadInput(f"{game}, {owners[place[-1]]}{when}: {fault}")


def _numbered(what: str, count: int) -> list[str]:
    return [f"{what} {i}" for i in range(count)]


def check_simple(places: Sequence[str], edges: np.ndarray, names: Sequence[str]) -> None:
    """No loops, and each edge (E, 2) once, whichever way round: BadInput with its place otherwise."""
    for place, (i, k) in zip(places, edges.tolist(), strict=True):
        if i == k:
            raise BadInput(f"{place}: joins {names[i]} to itself; remove it")
    check_once(places, np.sort(edges, 1), (names, names))


def check_once(places: Sequence[str], pairs: np.ndarray, names: tuple[Sequence[str], Sequence[str]]) -> None:
    """Each of the pairs (P, 2) once: BadInput with its place otherwise."""
    seen: set[tuple[int, int]] = set()
    for place, (i, j) in zip(places, pairs.tolist(), strict=True):
        if (i, j) in seen:
            raise BadInput(f"{place}: {names[0][i]} and {names[1][j]} are joined already; remove one of the two")
        seen.add((i, j))


def _check_ends(where: str, edges: np.ndarray, names: tuple[Sequence[str], Sequence[str]]) -> None:
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind != "i":
        raise BadInput(f"{where}: expected an integer array (E, 2), got {edges.dtype} {edges.shape}")
    bad = np.argwhere((edges < 0) | (edges >= np.array([len(n) for n in names])))
    if len(bad):
        number, end = bad[0]
        count = len(names[end])
        raise BadInput(f"{where}, edge {number}: there is no node {edges[number, end]}; nodes are 0 to {count - 1}")


def check_connected(where: str, edges: np.ndarray, names: Sequence[str]) -> None:
    """BadInput that names a node of each of two parts."""
    graph = nx.Graph(edges.tolist())
    graph.add_nodes_from(range(len(names)))
    parts = [sorted(part) for part in nx.connected_components(graph)]
    if len(parts) > 1:
        first, second = parts[0], parts[1]
        raise BadInput(
            f"{where}: disconnected, {len(parts)} parts; {names[first[0]]} and {names[second[0]]} are not joined "
            f"(parts of {len(first)} and {len(second)} nodes): add edges, or make each part a game"
        )


def check_coupled(where: str, pairs: np.ndarray, sites: Sequence[str]) -> None:
    """Every site has a node, and pairs are sorted: BadInput otherwise."""
    alone = np.setdiff1d(np.arange(len(sites)), pairs[:, 0])
    if len(alone):
        raise BadInput(f"{where}: site {sites[alone[0]]} has no supply node; couple it to at least one, or remove it")
    if (np.lexsort((pairs[:, 1], pairs[:, 0])) != np.arange(len(pairs))).any():
        raise BadInput(f"{where}: pairs are out of order; sort them by site, then node")


def _check_rows(game: str, instance: Instance, nodes: list[str]) -> None:
    rows = _numbered("limit of the supply network, row", len(instance.row_limit))
    _check_array(game, LIMIT, instance.row_limit, (len(rows),), rows)
    entries = len(instance.row_index)
    owners = [f"entry {i} of the supply network's limits" for i in range(entries)]
    _check_array(game, COEFFICIENT, instance.row_coefficient, (entries,), owners)
    where = f"{game}, limits of the supply network"
    _check_ends(where, np.stack([instance.row_index, instance.row_node], 1), (rows, nodes))
    if (np.diff(instance.row_index) < 0).any() or len(np.unique(instance.row_index)) != len(rows):
        raise BadInput(f"{where}: entries must be sorted by row, and each of the {len(rows)} rows have one")
    if len(np.unique(instance.row_index * len(nodes) + instance.row_node)) != entries:
        raise BadInput(f"{where}: a node occurs twice in a row; add its coefficients up")
