"""Games on a user's own graphs. A folder holds:

- `game.toml`: `domain`, `levels`, `horizon`, `budget = [demand, supply]`, `shelf_life`, `waste_price`; values for all
  nodes in `[site]` and `[node]`; `service_unit` and `money_unit`, which all numbers are divided by, so that typical
  capacities and prices are about 1 as in the games that networks are trained on; `ignore = [columns]`. All optional.
- `demand.graphml` (undirected), or `demand_nodes.csv` (`id`, x, y, columns of SITE_RULES) and `demand_edges.csv`
  (`source`, `target`, limit); `demand_by_round.csv` (`round`, one column per site) where demand changes.
- `supply.graphml`, or `supply_nodes.csv` (`id`, x, y, columns of NODE_RULES) and `supply_edges.csv` (`source` upstream,
  `target`, limit: of all that flows to the nodes below, in a forest); other limits in `supply_limits.csv` (`row`,
  `node`, `limit`, coefficient: the sum of coefficient x flow over the rows of one name is at most its limit).
- `coupling.csv` (`site`, `node`).

What is left out has the default of its rule, in the divided units; limits, knee and pool: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.graph_game.check import check_coupled, check_instance, check_once
from refork.envs.graph_game.coupling import sort_pairs
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.limits import supply_limits
from refork.envs.graph_game.observe import CAP
from refork.envs.graph_game.rules import NODE_RULES, SITE_RULES, Rule
from refork.envs.graph_game.settings import Settings, checked, read_settings, write_settings
from refork.envs.graph_game.side import Side, make_side, to_indices
from refork.envs.graph_game.tables import read_csv, read_graph, write_csv

SMALLEST = 0.1
"""Least typical capacity or price that observations still show well; CAP is the greatest."""


def read_game(folder: Path) -> Instance:
    """The game in that folder, by the folder's name. Raises BadInput: file, row or node, what to do."""
    settings = read_settings(folder / "game.toml")
    ignore = settings.ignore
    demand = make_side(read_graph(folder, "demand", ignore, undirected=True), SITE_RULES, settings, settings.site)
    supply = make_side(read_graph(folder, "supply", ignore, undirected=False), NODE_RULES, settings, settings.node)
    fields = {**demand.columns, **supply.columns}
    fields["demand"] = _demand(folder / "demand_by_round.csv", demand, settings)
    capital = np.array([fields["site_capital"].mean(), fields["node_capital"].mean()])
    instance = Instance(
        name=folder.resolve().name,
        domain=settings.domain,
        levels=settings.levels,
        roads=np.sort(demand.edges, 1),
        road_limit=_road_limit(demand, settings),
        links=supply.edges,
        pairs=_coupling(folder / "coupling.csv", demand, supply, settings),
        **fields,
        **supply_limits(folder / "supply_limits.csv", supply, settings),
        budget=0.8 * settings.horizon * capital if settings.budget is None else np.array(settings.budget),
        shelf_life=settings.shelf_life,
        waste_price=settings.waste_price,
        site_place=demand.places,
        node_place=supply.places,
        site_names=tuple(demand.index),
        node_names=tuple(supply.index),
    )
    check_instance(instance)
    _check_scale(folder / "game.toml", instance, settings)
    return instance


def _demand(path: Path, sites: Side, settings: Settings) -> np.ndarray:
    """(T, N)"""
    if not path.exists():
        return np.tile(sites.columns["demand"], (settings.horizon, 1))
    records = read_csv(path, ("round", *sites.index))
    rule = SITE_RULES[0]
    if len(records) != settings.horizon:
        raise BadInput(
            f"{path}: {len(records)} rounds; the horizon in game.toml is {settings.horizon}: make them equal"
        )
    demand = np.zeros((settings.horizon, len(sites.index)))
    for t, record in enumerate(records):
        if record.values["round"] != str(t):
            raise BadInput(
                f"{record.where}: round {record.values['round']!r}; rounds are 0, 1, 2 and so on: expected {t}"
            )
        if unknown := record.values.keys() - sites.index.keys() - {"round"}:
            raise BadInput(
                f"{record.where}: column {min(unknown)!r} is no node of {sites.where}; add it there, or remove it"
            )
        for name, i in sites.index.items():
            demand[t, i] = checked(f"{record.where}, site {name!r}", rule, record.values[name])
    return demand / settings.units[rule.unit]


def _road_limit(sites: Side, settings: Settings) -> np.ndarray:
    """(E,): where none is given, what both ends could serve at most."""
    reach = settings.levels * sites.columns["site_capacity"][sites.edges].sum(1)
    return np.where(np.isfinite(sites.edge_limit), sites.edge_limit, np.maximum(reach, 1.0))


def _coupling(path: Path, demand: Side, supply: Side, settings: Settings) -> np.ndarray:
    """(P, 2), sorted."""
    if not path.exists():
        raise BadInput(f"{path}: no such file; give one with the columns site, node")
    records = read_csv(path, ("site", "node"), settings.ignore)
    pairs = to_indices(records, ("site", "node"), (demand.index, supply.index), (demand.where, supply.where))
    sites = [repr(name) for name in demand.index]
    check_once([r.where for r in records], pairs, (sites, [repr(name) for name in supply.index]))
    pairs = sort_pairs(pairs)
    check_coupled(str(path), pairs, sites)
    return pairs


def _check_scale(path: Path, instance: Instance, settings: Settings) -> None:
    """Observations are cut at CAP: typical numbers far from 1 would make all nodes look alike."""
    for key, what, values in (
        ("service_unit", "capacity of a site", instance.site_capacity),
        ("service_unit", "capacity of a supply node", instance.node_capacity),
        ("money_unit", "price", instance.price),
    ):
        typical = float(np.median(values[values > 0])) if (values > 0).any() else 1.0
        if not SMALLEST <= typical <= CAP:
            unit = settings.units["service" if key == "service_unit" else "money"]
            raise BadInput(
                f"{path}: the typical {what} comes to {typical:g}; set {key} = {typical * unit:g} to make it 1"
            )


def write_game(instance: Instance, folder: Path) -> None:
    """Write it as `read_game` reads it: CSV files in a new or empty folder. Raises BadInput for one that is not."""
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder}: is not empty; name a new folder for the game")
    folder.mkdir(parents=True, exist_ok=True)
    sites = instance.site_names or tuple(map(str, range(instance.sites)))
    nodes = instance.node_names or tuple(map(str, range(instance.nodes)))
    write_settings(folder / "game.toml", instance)
    _write_side(folder, "demand", sites, SITE_RULES[1:], instance, instance.site_place)
    _write_side(folder, "supply", nodes, NODE_RULES, instance, instance.node_place)
    roads = [(sites[i], sites[k], limit) for (i, k), limit in zip(instance.roads, instance.road_limit, strict=True)]
    write_csv(folder / "demand_edges.csv", ("source", "target", "limit"), roads)
    write_csv(folder / "supply_edges.csv", ("source", "target"), ((nodes[i], nodes[k]) for i, k in instance.links))
    write_csv(folder / "coupling.csv", ("site", "node"), ((sites[i], nodes[j]) for i, j in instance.pairs))
    by_round = ((t, *row) for t, row in enumerate(instance.demand))
    write_csv(folder / "demand_by_round.csv", ("round", *sites), by_round)
    entries = zip(instance.row_index, instance.row_node, instance.row_coefficient, strict=True)
    rows = ((f"row{r}", nodes[j], instance.row_limit[r], coefficient) for r, j, coefficient in entries)
    write_csv(folder / "supply_limits.csv", ("row", "node", "limit", "coefficient"), rows)


def _write_side(
    folder: Path, side: str, names: Sequence[str], rules: Sequence[Rule], instance: Instance, places: np.ndarray
) -> None:
    columns = [getattr(instance, rule.field) for rule in rules]
    place = places if len(places) else np.zeros((len(names), 0))
    header = ("id", *("x", "y")[: place.shape[1]], *(rule.column for rule in rules))
    write_csv(
        folder / f"{side}_nodes.csv", header, ((n, *p, *row) for n, p, *row in zip(names, place, *columns, strict=True))
    )
