"""A user's own graphs: read and written exactly, and every fault named with its file, its row, and a way out."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.graph_game.check import check_instance
from refork.envs.graph_game.env import GraphGameEnv
from refork.envs.graph_game.files import read_game, write_game
from refork.envs.graph_game.generate import make_instance

FILES = {
    "game.toml": "horizon = 4\nbudget = [10, 20.5]\n[site]\nprice = 1.5\n",
    "demand_nodes.csv": "id,capacity,demand\na,1.0,2\nb,,3\nc,0.5,0\n",
    "demand_edges.csv": "source,target,limit\nb,a,1.25\nb,c,\n",
    "supply_nodes.csv": "id,start\nA,0.5\nB,\n",
    "supply_edges.csv": "source,target\nA,B\n",
    "coupling.csv": "site,node\nb,B\na,A\nc,B\nb,A\n",
}


def write(folder: Path, **changes: str | None) -> Path:
    """The small game with some files replaced (`demand_nodes` for demand_nodes.csv), or left out."""
    named = {("game.toml" if name == "game" else f"{name}.csv"): text for name, text in changes.items()}
    for name, text in {**FILES, **named}.items():
        if text is not None:
            (folder / name).write_text(text)
    return folder


def test_files_and_defaults_become_an_instance(tmp_path: Path) -> None:
    game = read_game(write(tmp_path))
    assert game.name == tmp_path.name
    assert (game.site_names, game.node_names) == (("a", "b", "c"), ("A", "B"))
    assert game.site_capacity.tolist() == [1.0, 1.0, 0.5]
    assert game.price.tolist() == [1.5] * 3
    assert game.demand.tolist() == [[2, 3, 0]] * 4
    assert game.node_start.tolist() == [0.5, 0.0]
    assert game.tariff.tolist() == [0.6] * 2
    assert game.roads.tolist() == [[0, 1], [1, 2]]
    assert game.road_limit.tolist() == [1.25, 3 * 1.5]
    assert game.pairs.tolist() == [[0, 0], [1, 0], [1, 1], [2, 1]]
    assert game.budget.tolist() == [10, 20.5]
    assert (game.levels, game.horizon, game.domain, len(game.row_limit)) == (3, 4, "own", 0)
    assert game.knee.tolist() == game.pool.tolist() == [math.inf] * 3


def test_what_is_read_plays(tmp_path: Path) -> None:
    env = GraphGameEnv(str(write(tmp_path)))
    env.reset()
    _, rewards, *_ = env.step({"demand": 0, "supply": 0})
    assert rewards == {"demand": pytest.approx(1.5 - 2.2 - 0.06), "supply": pytest.approx(0.6 - 4.0 - 0.08)}
    assert GraphGameEnv(tmp_path).instance.digest() == env.instance.digest()


@pytest.mark.parametrize("name", ["charging-irregular-n12-1", "hydrogen-regular-n9-0", "vaccine-irregular-n10-4"])
def test_a_written_game_is_read_back_to_the_bit(name: str, tmp_path: Path) -> None:
    game = make_instance(name)
    write_game(game, tmp_path / name)
    back = read_game(tmp_path / name)
    assert back.digest() == game.digest()
    assert (back.name, back.domain) == (name, game.domain)
    assert (back.site_place == game.site_place).all()
    assert (back.node_place == game.node_place).all()
    with pytest.raises(BadInput, match="is not empty"):
        write_game(game, tmp_path / name)


def test_units_divide_all_numbers(tmp_path: Path) -> None:
    """Two levels of the same game, in kilowatts and cents: the same play."""
    plain = write_back(tmp_path / "plain", 1.0, 1.0)
    scaled = write_back(tmp_path / "scaled", 50.0, 300.0)
    for name in ("demand", "road_limit", "price", "site_capital", "tariff", "take", "row_limit", "budget", "knee"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-12), name
    assert scaled.waste_price == pytest.approx(plain.waste_price)


def write_back(folder: Path, service: float, money: float) -> Any:
    game = make_instance("vaccine-regular-n8-0")
    factor = {"service": service, "money": money, "price": money / service}
    changed = {
        "service": ("demand", "road_limit", "row_limit", "knee", "pool", "site_capacity", "node_capacity", "take"),
        "money": ("site_capital", "site_upkeep", "node_capital", "node_start", "node_upkeep", "budget"),
        "price": ("price", "late_price", "tariff", "take_price", "waste_price"),
    }
    scaled = {name: getattr(game, name) * factor[unit] for unit, names in changed.items() for name in names}
    write_game(replace(game, **scaled), folder)
    (folder / "game.toml").write_text(
        f"service_unit = {service}\nmoney_unit = {money}\n" + (folder / "game.toml").read_text()
    )
    return read_game(folder)


def graphml(folder: Path, graph: nx.Graph, side: str = "demand") -> None:
    for end in ("nodes", "edges"):
        (folder / f"{side}_{end}.csv").unlink(missing_ok=True)
    nx.write_graphml(graph, folder / f"{side}.graphml")


def sites(*, kind: type[nx.Graph] = nx.Graph) -> nx.Graph:
    graph = kind()
    graph.add_node("a", capacity=1.0, demand=2)
    graph.add_node("b", demand=3)
    graph.add_node("c", capacity=0.5, demand=0)
    graph.add_edge("b", "a", limit=1.25)
    graph.add_edge("b", "c")
    return graph


def test_graphml_says_the_same_as_csv(tmp_path: Path) -> None:
    expected = read_game(write(tmp_path))
    graphml(tmp_path, sites())
    supply = nx.DiGraph([("A", "B")])
    supply.nodes["A"]["start"] = 0.5
    graphml(tmp_path, supply, "supply")
    game = read_game(tmp_path)
    assert {tuple(r) for r in game.roads.tolist()} == {tuple(r) for r in expected.roads.tolist()}
    assert game.digest() == expected.digest()


def test_limits_of_supply_edges_hold_for_all_below(tmp_path: Path) -> None:
    write(
        tmp_path,
        supply_nodes="id\nA\nB\nC\nD\n",
        supply_edges="source,target,limit\nA,B,2\nB,C,0.75\nB,D,\n",
        supply_limits="row,node,limit,coefficient\nvolt,D,0.05,0.01\nvolt,A,0.05,\n",
    )
    game = read_game(tmp_path)
    rows = {
        float(limit): {int(j): float(c) for j, c in zip(game.row_node[m], game.row_coefficient[m], strict=True)}
        for limit, m in ((limit, game.row_index == r) for r, limit in enumerate(game.row_limit))
    }
    assert rows == {2.0: {1: 1.0, 2: 1.0, 3: 1.0}, 0.75: {2: 1.0}, 0.05: {3: 0.01, 0: 1.0}}
    (tmp_path / "supply_edges.csv").write_text("source,target,limit\nA,B,2\nC,B,\nB,D,\n")
    with pytest.raises(
        BadInput, match=r"supply_edges.csv, row 3: its target has an upstream edge already; limits need"
    ):
        read_game(tmp_path)


def test_demand_may_change_by_round(tmp_path: Path) -> None:
    write(tmp_path, demand_by_round="round,c,a,b\n0,1,2,3\n1,4,5,6\n2,0,0,0\n3,1,1,1\n")
    assert read_game(tmp_path).demand.tolist() == [[2, 3, 1], [5, 6, 4], [0, 0, 0], [1, 1, 1]]


NODES, EDGES = "id,capacity,demand\na,1.0,2\nb,,3\nc,0.5,0\n", "source,target,limit\nb,a,1.25\nb,c,\n"
FAULTS: list[tuple[dict[str, str | None], str]] = [
    ({"game": None}, r"game.toml: no such file; a folder with a game has one"),
    ({"game": "horizon = "}, r"game.toml: cannot be read as TOML"),
    ({"game": "horizon = 0"}, r"game.toml: horizon is 0; it must be a whole number, at least 1"),
    ({"game": "levels = 2.5"}, r"game.toml: levels is 2.5; it must be a whole number"),
    ({"game": "budget = [0, 5]"}, r"game.toml, demand: budget is 0; it must be above 0"),
    ({"game": "budget = 5"}, r"game.toml: budget is 5; give two numbers, \[demand, supply\]"),
    ({"game": "budget = [1, nan]"}, r"game.toml, supply: budget is nan; give a finite number"),
    ({"game": "waste_price = -1"}, r"game.toml: waste_price is -1; it must be at least 0"),
    ({"game": "money_unit = 0"}, r"game.toml: money_unit is 0.0; it must be a finite number above 0"),
    ({"game": "horzion = 9"}, r"game.toml: unknown key 'horzion'; there are: domain, levels, horizon"),
    ({"game": "[site]\nprise = 9"}, r"game.toml, \[site\]: unknown key 'prise'; there are: demand, price"),
    ({"game": "[site]\nprice = -1"}, r"demand_nodes.csv, row 2: price is -1; it must be at least 0"),
    ({"game": "site = 3"}, r"game.toml: site must be a table"),
    ({"game": "ignore = 'x'"}, r"game.toml: ignore is 'x'; give a list of column names"),
    ({"game": "service_unit = 1e-6"}, r"typical capacity of a site comes to .*; set service_unit = 0.5 to make it 1"),
    ({"game": "[site]\nprice = 80"}, r"game.toml: the typical price comes to 80; set money_unit = 80 to make it 1"),
    ({"demand_nodes": None}, r"no graph of the demand side; give demand.graphml, or demand_nodes.csv and demand_edges"),
    ({"demand_edges": None}, r"demand_edges.csv: cannot be read as CSV in UTF-8: .*No such file"),
    ({"demand_nodes": "id,capacity\n"}, r"demand_nodes.csv: no nodes; a game needs at least one on each side"),
    ({"demand_nodes": ""}, r"demand_nodes.csv: missing column 'id' in its first line; there are: none"),
    ({"demand_nodes": "name\na\n"}, r"demand_nodes.csv: missing column 'id' in its first line; there are: name"),
    ({"demand_nodes": "id,id\na,b\n"}, r"demand_nodes.csv: a column occurs twice in its first line: id, id"),
    ({"demand_nodes": NODES + "a,1,1\n"}, r"demand_nodes.csv, row 5: the id 'a' occurs twice; ids must differ"),
    ({"demand_nodes": NODES + "d,1\n"}, r"demand_nodes.csv, row 5: not as many values as there are columns \(3\)"),
    ({"demand_nodes": NODES + ",1,1\n"}, r"demand_nodes.csv, row 5: no id; give one, or remove the row"),
    ({"demand_nodes": NODES + "d,1,1\n"}, r"demand_nodes.csv: disconnected, 2 parts; 'a' and 'd' are not joined"),
    ({"demand_nodes": "id,capacity\na,-2\nb,1\nc,1\n"}, r"_nodes.csv, row 2: capacity is -2; it must be at least 0"),
    ({"demand_nodes": "id,capital\na,1\nb,0\nc,1\n"}, r"demand_nodes.csv, row 3: capital is 0; it must be above 0"),
    ({"demand_nodes": "id,price\na,1\nb,nan\nc,1\n"}, r"demand_nodes.csv, row 3: price is nan; give a finite number"),
    ({"demand_nodes": "id,price\na,1\nb,inf\nc,1\n"}, r"demand_nodes.csv, row 3: price is inf; give a finite number"),
    ({"demand_nodes": "id,knee\na,-inf\nb,inf\nc,1\n"}, r"demand_nodes.csv, row 2: knee is -inf; give a number or inf"),
    ({"demand_nodes": "id,price\na,1\nb,much\nc,1\n"}, r"row 3: price is 'much', not a number; give one"),
    ({"demand_nodes": "id,prise\na,1\nb,1\nc,1\n"}, r"row 2: unknown column 'prise'; .*write ignore = \['prise'\]"),
    ({"demand_nodes": "id,late_price\na,1\nb,9\nc,1\n"}, r"site 'b': late_price is above price; lower it"),
    ({"demand_nodes": "id,x\na,1\nb,\nc,1\n"}, r"demand_nodes.csv, row 2: x or y is missing; give both"),
    ({"demand_nodes": "id,x,y\na,1,1\nb,2,inf\nc,1,1\n"}, r"demand_nodes.csv, row 3: x, y are \[2.0, inf\]"),
    ({"demand_edges": EDGES + "a,d,\n"}, r"demand_edges.csv, row 4: target 'd' is no node of demand_nodes.csv; add it"),
    ({"demand_edges": EDGES + "a,b,\n"}, r"demand_edges.csv, row 4: 'a' and 'b' are joined already; remove one"),
    ({"demand_edges": EDGES + "a,a,\n"}, r"demand_edges.csv, row 4: joins 'a' to itself; remove it"),
    ({"demand_edges": EDGES + "a,c,0\n"}, r"demand_edges.csv, row 4: limit is 0; it must be above 0"),
    ({"demand_edges": EDGES + "a,c,-1\n"}, r"demand_edges.csv, row 4: limit is -1; it must be above 0"),
    ({"demand_edges": "source,target\na,b\n"}, r"demand_nodes.csv: disconnected, 2 parts; 'a' and 'c' are not joined"),
    ({"demand_edges": "source,target\n"}, r"disconnected, 3 parts"),
    ({"coupling": None}, r"coupling.csv: no such file; give one with the columns site, node"),
    ({"coupling": "site,node\na,A\nb,B\n"}, r"coupling.csv: site 'c' has no supply node; couple it to at least one"),
    ({"coupling": "site,node\na,A\nb,Z\n"}, r"coupling.csv, row 3: node 'Z' is no node of supply_nodes.csv; add it"),
    ({"coupling": "site,node\na,A\nA,a\n"}, r"coupling.csv, row 3: site 'A' is no node of demand_nodes.csv; add it"),
    ({"coupling": "site,node\na,A\nb,A\na,A\n"}, r"coupling.csv, row 4: 'a' and 'A' are joined already; remove one"),
    ({"coupling": "site;node\na;A\n"}, r"coupling.csv: missing column 'site' in its first line; there are: site;node"),
    ({"demand_by_round": "round,a,b,c\n0,1,1,1\n"}, r"demand_by_round.csv: 1 rounds; the horizon in game.toml is 4"),
    ({"demand_by_round": "round,a,b\n0,1,1\n"}, r"demand_by_round.csv: missing column 'c'"),
    (
        {"demand_by_round": "round,a,b,c\n0,1,1,1\n1,1,-1,1\n2,1,1,1\n3,1,1,1\n"},
        r"demand_by_round.csv, row 3, site 'b': demand is -1; it must be at least 0",
    ),
    (
        {"demand_by_round": "round,a,b,c\n0,1,1,1\n2,1,1,1\n1,1,1,1\n3,1,1,1\n"},
        r"demand_by_round.csv, row 3: round '2'; rounds are 0, 1, 2 and so on: expected 1",
    ),
    (
        {"demand_by_round": "round,a,b,c,d\n0,1,1,1,1\n1,1,1,1,1\n2,1,1,1,1\n3,1,1,1,1\n"},
        r"demand_by_round.csv, row 2: column 'd' is no node of demand_nodes.csv",
    ),
    (
        {"supply_limits": "row,node,limit\nr,Z,1\n"},
        r"supply_limits.csv, row 2: node 'Z' is no node of supply_nodes.csv",
    ),
    (
        {"supply_limits": "row,node,limit\nr,A,1\nr,B,2\n"},
        r"supply_limits.csv, row 3: another limit than before in row",
    ),
    ({"supply_limits": "row,node,limit\nr,A,1\nr,A,1\n"}, r"supply_limits.csv, row 3: node 'A' is in row 'r' already"),
    ({"supply_limits": "row,node,limit\nr,A,\n"}, r"supply_limits.csv, row 2: no limit; give one, or remove the row"),
]


@pytest.mark.parametrize(("changes", "message"), FAULTS, ids=[m[:50] for _, m in FAULTS])
def test_a_fault_is_named_with_its_place(changes: dict[str, str | None], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        read_game(write(tmp_path, **changes))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value) or tmp_path.name in str(caught.value) or "_nodes.csv" in str(caught.value)


def test_columns_named_to_be_ignored_are(tmp_path: Path) -> None:
    write(
        tmp_path,
        game=FILES["game.toml"].replace("[site]", "ignore = ['prise']\n[site]"),
        demand_nodes="id,prise\na,x\nb,\nc,1\n",
    )
    assert read_game(tmp_path).price.tolist() == [1.5] * 3


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "coupling.csv").write_bytes(b"site,node\n\xff\xfe,A\n")
    with pytest.raises(BadInput, match=r"coupling.csv: cannot be read as CSV in UTF-8"):
        read_game(tmp_path)


def _directed(folder: Path) -> None:
    graphml(folder, sites(kind=nx.DiGraph))


def _both(folder: Path) -> None:
    nx.write_graphml(sites(), folder / "demand.graphml")


def _broken(folder: Path) -> None:
    graphml(folder, sites())
    path = folder / "demand.graphml"
    path.write_text(path.read_text()[:-30])


def _twice(folder: Path) -> None:
    graphml(folder, sites())
    path = folder / "demand.graphml"
    path.write_text(path.read_text().replace('<node id="c">', '<node id="a">'))


def _parallel(folder: Path) -> None:
    graph = sites(kind=nx.MultiGraph)
    graph.add_edge("a", "b")
    graphml(folder, graph)


def _loop(folder: Path) -> None:
    graph = sites()
    graph.add_edge("c", "c")
    graphml(folder, graph)


def _negative(folder: Path) -> None:
    graph = sites()
    graph.nodes["b"]["capacity"] = -1.0
    graphml(folder, graph)


def _empty(folder: Path) -> None:
    graphml(folder, nx.Graph())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_directed, r'demand.graphml: the graph is directed; here it must be undirected: set edgedefault="undirected"'),
        (_both, r"both demand.graphml and demand_\*.csv are there; remove one of them"),
        (_broken, r"demand.graphml: cannot be read as GraphML"),
        (_twice, r"demand.graphml, node 'a': the id occurs twice"),
        (_parallel, r"demand.graphml, edge 'a' to 'b': 'a' and 'b' are joined already; remove one of the two"),
        (_loop, r"demand.graphml, edge 'c' to 'c': joins 'c' to itself"),
        (_negative, r"demand.graphml, node 'b': capacity is -1; it must be at least 0"),
        (_empty, r"demand.graphml: no nodes"),
    ],
)
def test_a_fault_in_graphml_is_named_with_its_place(
    spoil: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    spoil(write(tmp_path))
    with pytest.raises(BadInput, match=message):
        read_game(tmp_path)


def _with(name: str, place: tuple[int, ...], value: float) -> dict[str, Any]:
    array = getattr(make_instance("hydrogen-regular-n5-0"), name).copy()
    array[place] = value
    return {name: array}


GAME = r"game 'hydrogen-regular-n5-0'"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (_with("demand", (3, 2), math.nan), rf"{GAME}, site 2 in round 3: demand is nan; give a finite number"),
        (_with("site_capacity", (4,), -1.0), rf"{GAME}, site 4: capacity is -1; it must be at least 0"),
        (_with("tariff", (1,), math.inf), rf"{GAME}, supply node 1: tariff is inf; give a finite number"),
        (_with("budget", (1,), 0.0), rf"{GAME}, supply operator: budget is 0; it must be above 0"),
        (_with("road_limit", (0,), -2.0), rf"{GAME}, road 0: limit is -2; it must be above 0"),
        (_with("row_coefficient", (2,), 0.0), r"entry 2 of the supply network's limits: coefficient is 0"),
        (_with("row_limit", (1,), math.nan), r"limit of the supply network, row 1: limit is nan"),
        (_with("row_node", (0,), 5), r"limits of the supply network, edge 0: there is no node 5; nodes are 0 to 4"),
        (_with("row_index", (0,), 4), r"entries must be sorted by row"),
        (_with("pairs", (0, 1), -1), rf"{GAME}, coupling, edge 0: there is no node -1; nodes are 0 to 4"),
        (_with("roads", (0, 1), 0), rf"{GAME}, demand graph, edge 0: joins 0 to itself"),
        (_with("late_price", (0,), 9.0), rf"{GAME}, site 0: late_price is above price"),
        ({"demand": np.zeros((0, 5))}, rf"{GAME}: horizon is 0; it must be a whole number, at least 1"),
        ({"levels": 0}, rf"{GAME}: levels is 0; it must be a whole number, at least 1"),
        ({"shelf_life": -1}, rf"{GAME}: shelf_life is -1"),
        ({"waste_price": math.nan}, rf"{GAME}, all nodes: waste_price is nan"),
        ({"price": np.zeros(0)}, rf"{GAME}: no site; a game needs at least one"),
        ({"knee": np.zeros(4)}, rf"{GAME}: knee has the shape \(4,\); it must be \(5,\)"),
        (
            {"links": np.zeros((0, 2), np.int64)},
            rf"{GAME}, supply graph: disconnected, 5 parts; 0 and 1 are not joined",
        ),
        ({"roads": np.zeros((0, 2))}, rf"{GAME}, demand graph: expected an integer array \(E, 2\), got float64"),
        ({"pairs": make_instance("hydrogen-regular-n5-0").pairs[::-1]}, r"coupling: pairs are out of order"),
        ({"pairs": make_instance("hydrogen-regular-n5-0").pairs[:12]}, r"coupling: site 4 has no supply node"),
        (
            {"pairs": make_instance("hydrogen-regular-n5-0").pairs[[0, *range(15)]]},
            r"coupling, pair 1: 0 and . are joined",
        ),
    ],
)
def test_an_instance_built_in_code_is_checked_before_the_first_step(changes: dict[str, Any], message: str) -> None:
    instance = replace(make_instance("hydrogen-regular-n5-0"), **changes)
    if "roads" in changes and len(changes["roads"]) == 0:
        instance = replace(instance, road_limit=np.zeros(0))
    with pytest.raises(BadInput, match=message):
        check_instance(instance)
    with pytest.raises(BadInput, match=message):
        GraphGameEnv(instance)


def test_generated_instances_pass_the_check() -> None:
    for domain in ("charging", "hydrogen", "vaccine"):
        for size in (3, 10, 70):
            check_instance(make_instance(f"{domain}-irregular-n{size}-5"))
