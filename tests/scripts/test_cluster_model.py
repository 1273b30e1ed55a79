"""The simulation of a cluster, on runs whose length is known."""

import math
from dataclasses import replace

import pytest
from refork.scripts.bench.cluster_sim import Costs, Layout, drawn_from, simulate

LENGTHS = [5.0, 1.0, 2.0, 9.0, 3.0, 1.0, 1.0, 2.0]
ONE = Layout(nodes=1, groups=8, updates=3)


def of_place(_update: int, group: int) -> float:
    return LENGTHS[group]


def equal(_update: int, _group: int) -> float:
    return 2.0


def test_one_actor_plays_one_after_the_other() -> None:
    told = simulate(ONE, Costs(), of_place)
    assert told.seconds == told.played_s == 3 * sum(LENGTHS)
    assert told.ends == [24.0, 48.0, 72.0]
    assert told.groups == 24


@pytest.mark.parametrize(("actors", "seconds"), [(2, 8.0), (3, 6.0), (8, 2.0), (20, 2.0)])
def test_equal_groups_go_in_whole_rounds(actors: int, seconds: float) -> None:
    """ceil(8 / actors) rounds of 2 s an update."""
    assert simulate(replace(ONE, nodes=actors), Costs(), equal).seconds == 3 * seconds
    assert simulate(replace(ONE, actors_per_node=actors), Costs(), equal).seconds == 3 * seconds


def test_the_longest_group_holds_up_the_update() -> None:
    """Two actors: 5 | 1 2 9 -> 12; 3 1 1 2 on the first -> 12. Eight: all wait for 9."""
    assert simulate(replace(ONE, nodes=2), Costs(), of_place).ends[0] == 12.0
    assert simulate(replace(ONE, nodes=8), Costs(), of_place).ends[0] == 9.0


def test_every_cost_is_paid_where_it_arises() -> None:
    costs = Costs(call=0.5, answer=0.25, actor_extra=1.0, record_per_group=0.125, update=4.0, update_per_group=2.0)
    told = simulate(ONE, costs, equal)
    assert told.seconds == 3 * (8 * (2.0 + 1.0 + 0.5 + 0.25 + 0.125 + 2.0) + 4.0)
    assert told.learnt_s == 3 * (8 * 2.125 + 4.0)


def test_a_learner_slower_than_the_actors_bounds_the_rate() -> None:
    layout = Layout(nodes=8, groups=8, updates=50, staleness=1)
    told = simulate(layout, Costs(update=10.0), equal)
    assert told.seconds == 2.0 + 50 * 10.0
    assert simulate(replace(layout, nodes=1000), Costs(update=10.0), equal).seconds == told.seconds


def test_staleness_hides_the_shorter_of_playing_and_learning() -> None:
    layout = Layout(nodes=8, groups=8, updates=50)
    assert simulate(layout, Costs(update=1.5), equal).seconds == 50 * (2.0 + 1.5)
    assert simulate(replace(layout, staleness=1), Costs(update=1.5), equal).seconds == 50 * 2.0 + 1.5


def test_staleness_does_not_hide_the_longest_group() -> None:
    """Two collections are never out at once (trainers/ahead.py)."""
    told = simulate(Layout(nodes=8, groups=8, updates=10, staleness=3), Costs(), of_place)
    assert told.seconds == 10 * 9.0


def test_learners_hand_out_and_learn_side_by_side() -> None:
    costs = Costs(call=1.0, update_per_group=1.0, exchange=0.5, gather_per_group=0.25)
    one, two = (simulate(Layout(nodes=8, learners=n, groups=8, updates=1), costs, equal) for n in (1, 2))
    assert one.seconds == 8 * 1.0 + 2.0 + 8.0
    assert two.seconds == 4 * 1.0 + 2.0 + 4 * 0.25 + 4.0 + 0.5


def test_weights_reach_k_nodes_in_the_logarithm_of_k_steps() -> None:
    for nodes, steps in ((1, 1), (3, 2), (7, 3), (8, 4)):
        told = simulate(Layout(nodes=nodes, groups=nodes, updates=1), Costs(weights=1.0), equal)
        assert told.seconds == steps + 2.0, nodes


def test_evaluation_and_saves_come_between_updates() -> None:
    costs = Costs(evaluate_every=2, evaluate_groups=3, save_every=3, save=0.5)
    assert simulate(replace(ONE, updates=6), costs, equal).seconds == 6 * 16.0 + 3 * 6.0 + 2 * 0.5


def test_what_a_node_takes_with_it_is_played_again() -> None:
    layout = Layout(nodes=4, groups=16, updates=40)
    costs = Costs(node_life=60.0, recover=5.0, stall=0.5)
    whole, failing = simulate(layout, Costs(), equal), simulate(layout, costs, equal)
    assert failing.again > 0
    assert failing.played_s == whole.played_s - 2.0 * failing.lost
    assert failing.seconds > whole.seconds + 0.5 * failing.again


def test_the_same_seed_gives_the_same_run() -> None:
    layout, costs = Layout(nodes=5, actors_per_node=2, groups=40, staleness=1), Costs(node_life=50.0, recover=5.0)
    runs = [simulate(layout, costs, drawn_from(LENGTHS, seed), seed) for seed in (3, 3, 4)]
    assert runs[0] == runs[1]
    assert runs[0].ends != runs[2].ends


def test_groups_are_drawn_from_what_was_measured_whatever_the_layout() -> None:
    draw = drawn_from(LENGTHS, 0)
    found = [draw(update, group) for update in range(50) for group in range(50)]
    assert set(found) == set(LENGTHS)
    assert sum(found) / len(found) == pytest.approx(sum(LENGTHS) / len(LENGTHS), rel=0.05)
    few, many = (simulate(Layout(nodes=n, groups=50, updates=2), Costs(), draw).played_s for n in (1, 50))
    assert math.isclose(few, many)
