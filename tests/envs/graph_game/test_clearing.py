"""Clearing: never more than any limit lets through, almost the greatest value, and exactly it where asked for."""

from collections.abc import Callable
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.envs.graph_game.batch import Batch, stack
from refork.envs.graph_game.clearing import Round, clear
from refork.envs.graph_game.exact import clear_exactly
from refork.envs.graph_game.generate import make_instance

from tests.envs.graph_game.rounds import excess, random_batch, random_round, through, worth
from tests.envs.graph_game.tiny import tiny

Clearing = Callable[[Batch, Round], np.ndarray]
SEEDS = st.integers(0, 10**6)


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, games=st.integers(1, 3), knees=st.booleans(), decades=st.sampled_from([0, 0, 3, 17]))
def test_no_limit_is_ever_broken(seed: int, games: int, knees: bool, decades: int) -> None:
    batch = random_batch(seed, games)
    now = random_round(batch, seed, knees=knees, decades=decades)
    for clearing in (clear, clear_exactly):
        flow = clearing(batch, now)
        assert np.isfinite(flow).all()
        assert excess(batch, now, flow) <= 1e-9, clearing


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, knees=st.booleans())
def test_prices_come_near_the_greatest_value_and_never_above(seed: int, knees: bool) -> None:
    batch = random_batch(seed)
    now = random_round(batch, seed, knees=knees)
    best = worth(batch, now, clear_exactly(batch, now))
    assert 0.7 * best <= worth(batch, now, clear(batch, now)) <= best + 1e-9


def test_prices_reach_ninety_six_percent_of_the_greatest_value_on_average() -> None:
    shares = []
    for seed in range(200):
        batch = random_batch(seed)
        now = random_round(batch, seed, knees=seed % 2 == 1)
        if best := worth(batch, now, clear_exactly(batch, now)):
            shares.append(worth(batch, now, clear(batch, now)) / best)
    assert len(shares) > 190
    assert np.mean(shares) > 0.96
    assert np.min(shares) > 0.8


def simple_batch(seed: int) -> tuple[Batch, Round]:
    """Prices all 1, tariffs 0, no limits but those of sites and nodes: the value is the flow."""
    batch = random_batch(seed)
    now = random_round(batch, seed, knees=False)
    free = replace(batch.rows, limit=np.full(len(batch.rows.limit), 1e6))
    batch = replace(batch, rows=free, road_limit=np.full(len(batch.road_limit), 1e6))
    return batch, replace(now, value=np.ones_like(now.value))


def max_flow(batch: Batch, now: Round) -> float:
    graph = nx.DiGraph()
    graph.add_nodes_from(("source", "sink"))
    for i, limit in enumerate(now.site_limit.ravel()):
        graph.add_edge(("node", i), "sink", capacity=0.0)
        graph.add_edge("source", ("site", i), capacity=limit)
    for j, limit in enumerate(now.node_limit.ravel()):
        graph.add_edge(("node", j), "sink", capacity=limit)
    graph.add_edges_from((("site", int(i)), ("node", int(j))) for i, j in batch.topology.pairs.T)
    return float(nx.maximum_flow_value(graph, "source", "sink"))


@pytest.mark.parametrize("seed", range(12))
def test_exact_is_the_maximum_flow_where_nothing_else_limits(seed: int) -> None:
    batch, now = simple_batch(seed)
    best = max_flow(batch, now)
    assert clear_exactly(batch, now).sum() == pytest.approx(best, abs=1e-7)
    assert 0.9 * best - 1e-9 <= clear(batch, now).sum() <= best + 1e-9


def by_hand(**changes: np.ndarray) -> tuple[Batch, Round]:
    """Sites 0, 1 joined by a road; node 0 serves both, node 1 serves site 1; values 2, 1 and 1.5."""
    instance = tiny(
        2,
        2,
        road_limit=changes.get("road_limit", np.array([9.0])),
        pairs=np.array([[0, 0], [1, 0], [1, 1]]),
        row_limit=changes.get("row_limit", np.array([9.0])),
        row_index=np.array([0, 0]),
        row_node=np.array([0, 1]),
        row_coefficient=np.array([1.0, 0.5]),
    )
    now = Round(
        np.array([[1.0, 2.0]]),
        np.array([[1.5, 1.0]]),
        np.array([2.0, 1.0, 1.5]),
        changes.get("knee", np.full((1, 2), np.inf)),
        changes.get("drop", np.zeros((1, 2))),
    )
    return stack([instance]), now


@pytest.mark.parametrize(
    ("changes", "flow"),
    [
        ({}, [1.0, 0.5, 1.0]),  # site 0 fills up, node 0 gives the rest to site 1, node 1 is used up
        ({"road_limit": np.array([1.5])}, [1.0, 0.0, 0.5]),  # the worst pair gives way
        ({"row_limit": np.array([1.2])}, [0.7, 0.0, 1.0]),  # node 1 counts half
        (
            {"knee": np.array([[0.25, 9.0]]), "drop": np.array([[1.5, 0.0]])},
            [0.5, 1.0, 1.0],
        ),  # a full unit is 2, then .5
    ],
)
def test_exact_by_hand(changes: dict[str, np.ndarray], flow: list[float]) -> None:
    batch, now = by_hand(**changes)
    assert clear_exactly(batch, now) == pytest.approx(flow)
    best = worth(batch, now, np.array(flow))
    assert worth(batch, now, clear(batch, now)) >= 0.9 * best


@pytest.mark.parametrize("clearing", [clear, clear_exactly])
def test_games_of_a_batch_do_not_touch_each_other(clearing: Clearing) -> None:
    instances = [make_instance(f"{d}-irregular-n{n}-0") for d, n in (("charging", 5), ("vaccine", 9), ("hydrogen", 7))]
    instances[1] = replace(instances[1], price=instances[1].price * 40)  # dear games have their own scale
    together = stack(instances)
    now = random_round(together, 3, knees=True)
    flow = clearing(together, now)
    served, given = through(together, flow)
    owner = together.topology.pairs[0] // together.sites
    for b, instance in enumerate(instances):
        single = stack([instance])
        alone = Round(
            now.site_limit[b : b + 1, : instance.sites],
            now.node_limit[b : b + 1, : instance.nodes],
            now.value[owner == b],
            now.knee[b : b + 1, : instance.sites],
            now.drop[b : b + 1, : instance.sites],
        )
        own_served, own_given = through(single, clearing(single, alone))
        assert served.reshape(now.site_limit.shape)[b, : instance.sites] == pytest.approx(own_served, abs=1e-9)
        assert given.reshape(now.node_limit.shape)[b, : instance.nodes] == pytest.approx(own_given, abs=1e-9)


@pytest.mark.parametrize("clearing", [clear, clear_exactly])
def test_nothing_flows_where_nothing_can(clearing: Clearing) -> None:
    batch, now = by_hand()
    assert not clearing(batch, replace(now, site_limit=np.zeros((1, 2)))).any()
    assert not clearing(batch, replace(now, node_limit=np.full((1, 2), 1e-16))).any()
    assert not clearing(batch, replace(now, value=np.full(3, -1.0))).any()
    assert clearing(batch, replace(now, value=np.array([-1.0, 1.0, 1.0])))[0] == 0.0
