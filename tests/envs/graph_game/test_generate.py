"""Instances by name: the same everywhere, the three domains as described, errors for wrong names."""

import time

import networkx as nx
import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.graph_game.coupling import coupling_stats
from refork.envs.graph_game.domains.charging import DROP_PER_OHM, RESISTANCE
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import domain_names, make_instance, parse_name
from refork.envs.graph_game.instance import Instance

from tests.envs.graph_game.processes import outputs_by_hash_seed

DOMAINS = ("charging", "hydrogen", "vaccine")


def test_a_name_is_the_same_game_in_every_process() -> None:
    names = [f"{domain}-irregular-n13-5" for domain in DOMAINS]
    script = f"from refork.envs.graph_game.generate import make_instance as m\nprint([m(n).digest() for n in {names}])"
    assert outputs_by_hash_seed(script) == {str([make_instance(name).digest() for name in names])}


def test_names_differ_in_every_part() -> None:
    assert domain_names() == DOMAINS
    names = ["charging-regular-n9-0", "charging-regular-n9-1", "charging-irregular-n9-0", "vaccine-regular-n9-0"]
    assert len({make_instance(name).digest() for name in names}) == 4
    name = parse_name("hydrogen-irregular-n40-12")
    assert (name.domain, name.coupling, name.size, name.number) == ("hydrogen", "irregular", 40, 12)
    assert (name.cell, str(name)) == ("hydrogen/irregular/40", "hydrogen-irregular-n40-12")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("charging", "names no graph game: expected DOMAIN-COUPLING-nSIZE-NUMBER, e.g. charging-regular-n20-0"),
        ("charging-regular-20-0", "names no graph game"),
        ("charging-regular-n20-x", "names no graph game"),
        ("charging-regular-n-0", "names no graph game"),
        ("charging-regular-n20-", "names no graph game"),
        ("charging-regular-n20-0-1", "names no graph game"),
        ("water-regular-n20-0", "no domain 'water'; there are: charging, hydrogen, vaccine"),
        ("common-regular-n20-0", "no domain 'common'"),
        ("charging-odd-n20-0", "no coupling 'odd'; there are: regular, irregular"),
        ("charging-regular-n2-0", "at least 3 sites are needed, got 2"),
    ],
)
def test_a_wrong_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_instance(name)


def test_regular_and_irregular_have_as_many_pairs() -> None:
    for size in (3, 10, 40):
        regular, irregular = (make_instance(f"vaccine-{c}-n{size}-0") for c in ("regular", "irregular"))
        assert len(regular.pairs) == len(irregular.pairs) == 3 * size
        assert coupling_stats(regular.pairs, size, size).degree_cv == 0.0
    assert coupling_stats(irregular.pairs, 40, 40).degree_cv > 0.6
    assert coupling_stats(make_instance("vaccine-regular-n40-0", rewired=1.0).pairs, 40, 40).degree_cv > 0.6


def test_the_horizon_is_an_option() -> None:
    assert make_instance("hydrogen-regular-n8-0").horizon == 20
    assert make_instance("hydrogen-regular-n8-0", horizon=7).horizon == 7


def tree(instance: Instance) -> nx.DiGraph:
    graph = nx.DiGraph(instance.links.tolist())
    graph.add_nodes_from(range(instance.nodes))
    return graph


def row(instance: Instance, number: int) -> dict[int, float]:
    chosen = instance.row_index == number
    return dict(zip(instance.row_node[chosen].tolist(), instance.row_coefficient[chosen].tolist(), strict=True))


def test_charging_repeats_the_feeder_and_keeps_voltage() -> None:
    """32 buses below the substation, 4 ends; the drop at an end is the resistance of the shared path times the load."""
    instance = make_instance("charging-regular-n32-0")
    graph = tree(instance)
    assert nx.is_arborescence(graph)
    ends = [16, 20, 23, 31]
    assert sorted(n for n in graph if graph.out_degree(n) == 0) == ends
    assert [next(graph.predecessors(n)) for n in (17, 21, 24)] == [0, 1, 4]
    assert sum(RESISTANCE) == pytest.approx(20.5784)  # ohm, all 32 lines of the published table
    for bus in range(32):
        assert row(instance, bus) == dict.fromkeys(sorted(nx.descendants(graph, bus) | {bus}), 1.0)
    for number, end in enumerate(ends, 32):
        path = set(nx.shortest_path(graph, 0, end))
        for bus, coefficient in row(instance, number).items():
            shared = path & set(nx.shortest_path(graph, 0, bus))
            assert coefficient == pytest.approx(DROP_PER_OHM * sum(RESISTANCE[b] for b in shared))
        assert instance.row_limit[number] == pytest.approx(0.05)
    assert len(instance.row_limit) == 32 + 4


def test_larger_grids_are_several_feeders() -> None:
    instance = make_instance("charging-regular-n80-0")
    for first, last in ((0, 32), (32, 64), (64, 80)):
        assert list(row(instance, first)) == list(range(first, last))  # a first bus carries its own feeder alone
    assert nx.is_weakly_connected(tree(instance))


def test_hydrogen_loses_two_percent_an_arc() -> None:
    instance = make_instance("hydrogen-irregular-n45-1")
    graph = tree(instance)
    coefficients = instance.row_coefficient
    hops = np.log(coefficients) / -np.log(0.98)
    assert hops == pytest.approx(np.round(hops), abs=1e-9)
    assert hops.min() == pytest.approx(1)
    for node in range(45):
        for other, coefficient in row(instance, node).items():
            length = nx.shortest_path_length(graph, node, other)
            assert coefficient == pytest.approx(0.98 ** -(length + 1))
    assert instance.take == pytest.approx(0.5 * instance.node_capacity)
    assert (instance.node_start > 0).all()
    assert (instance.take_price > 0).all()


def test_vaccine_keeps_stock_and_counts_the_first_doses_more() -> None:
    instance = make_instance("vaccine-regular-n20-2")
    assert (instance.shelf_life, instance.waste_price) == (3, 0.3)
    assert instance.late_price == pytest.approx(0.5 * instance.price)
    assert instance.knee == pytest.approx(0.4 * instance.pool)
    assert instance.row_node.tolist() == list(range(20))
    assert instance.row_index.tolist() == [0] * 8 + [1] * 8 + [2] * 4


def test_a_thousand_sites_are_generated_and_played_in_seconds() -> None:
    for domain in DOMAINS:
        begun = time.process_time()
        instance = make_instance(f"{domain}-irregular-n1000-0")
        assert time.process_time() - begun < 3.0, domain
        assert len(instance.pairs) == 3000
        game = Game([instance])
        opened = instance.pairs[np.unique(instance.pairs[:, 1], return_index=True)[1]]  # one pair of each node
        begun = time.process_time()
        while not game.ended:
            game.step(opened[game.t][None] if game.t < 10 else np.array([[1000, 1000]]))
        assert time.process_time() - begun < 3.0, domain
        assert game.state.covered.sum() > 0
