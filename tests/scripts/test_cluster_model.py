"""The simulation of a cluster, on runs whose length is known; the model made from measurements that are known."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refork.envs.forkable import BadInput
from refork.scripts.bench import cluster_model
from refork.scripts.bench.cluster_costs import numbers_of, runs_of
from refork.scripts.bench.cluster_growth import Design, row_of
from refork.scripts.bench.cluster_sim import Costs, Layout, drawn_from, simulate
from refork.scripts.bench.cluster_validation import mean_error, validate

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


def run(rate: float, collect_s: float, **place: int) -> dict[str, Any]:
    """Two updates of 8 groups of 2 s and 3 episodes, half a second each to learn, after one that was slow."""
    return {
        "work": "repair",
        "place": {"actors": 0, "learners": 1, "staleness": 0, "nodes": 0} | place,
        "rate": rate,
        "first_step_s": 7.0,
        "collect_s": [99.0, collect_s, collect_s],
        "update_s": [9.0, 0.5, 0.5],
        "episodes": [1, 24, 24],
        "units_s": [[50.0], [2.0] * 8, [2.0] * 8],
    }


FREE = {"weights_bytes": 1.25e6, "answer_bytes": 0.0, "store_s_per_episode": 0.0, "save_s": 0.0}
MEASURED = {
    "quick": True,
    "cores": 2,
    "load": 0.0,
    "costs": {"repair": FREE},
    "calls": {"call_s": 0.0, "wait_s_per_call_out": 0.0, "transfer_s_per_byte": 0.0},
    "runs": [
        run(24 / 16.5, 16.0, actors=1),
        run(24 / 8.5, 8.0, actors=2),
        run(24 / 8.0, 7.5, actors=3, nodes=3),
    ],
}
NO_NETWORK = {"latency": 0.0, "weights_bytes": 0.0}


def test_numbers_are_those_that_were_measured_each_with_its_source() -> None:
    numbers = numbers_of(MEASURED, "repair", {"node_life": 1000.0})
    assert (numbers["group"].value, numbers["episodes_per_group"].value) == (2.0, 3.0)
    assert (numbers["update_per_group"].value, numbers["actor_extra"].value) == (0.5 / 8, 0.0)
    assert numbers["recover"].value == 7.0
    assert (numbers["node_life"].value, numbers["node_life"].source) == (1000.0, "given")
    assert all(number.source.startswith(("measured", "assumed", "cluster/", "given")) for number in numbers.values())


@pytest.mark.parametrize(
    ("work", "given", "said"),
    [("chain", {}, "no run of chain was measured"), ("repair", {"cal": 1.0}, "--set cal: no")],
)
def test_what_is_not_there_is_said(work: str, given: dict[str, float], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        numbers_of(MEASURED, work, given)


def test_predictions_meet_runs_that_are_as_the_model_says() -> None:
    """Three actors on two cores: three rounds of 3 s instead of 2, so 9.5 s an update where 8 were measured."""
    compared = validate(runs_of(MEASURED, "repair"), numbers_of(MEASURED, "repair", NO_NETWORK), 2)
    assert [one.fitted for one in compared] == [True, False, False]
    assert [one.predicted for one in compared] == pytest.approx([24 / 16.5, 24 / 8.5, 24 / 9.5])
    assert [one.error for one in compared] == pytest.approx([0.0, 0.0, 8.0 / 9.5 - 1])
    assert mean_error(compared) == pytest.approx((1 - 8.0 / 9.5) / 2)


@pytest.mark.parametrize(
    ("given", "lengths", "design", "bottleneck"),
    [
        ({}, [2.0], Design("calm"), "none: the actors"),
        ({}, [1.0, 9.0], Design("uneven"), "stragglers"),
        ({"update_per_group": 1.0}, [2.0], Design("slow learner"), "learner"),
        ({"update_per_group": 1.0}, [2.0], Design("slow learner, behind", staleness=1), "learner"),
        ({"call": 1.0}, [2.0], Design("slow calls"), "dispatch"),
        ({"weights_bytes": 1.25e10}, [2.0], Design("large weights"), "weight broadcast"),
        ({"store": 1.0}, [2.0], Design("slow disk"), "storage"),
        ({"node_life": 20.0}, [2.0], Design("bad nodes"), "node failures"),
    ],
)
def test_the_bottleneck_is_what_was_made_slow(
    given: dict[str, float], lengths: list[float], design: Design, bottleneck: str
) -> None:
    quiet = {"update_per_group": 0.0, "evaluate_every": 0.0, **NO_NETWORK}
    numbers = numbers_of(MEASURED, "repair", quiet | given)
    row = row_of(design, design.layout(nodes=8, actors_per_node=1, updates=4), numbers, lengths)
    assert row.bottleneck == bottleneck


def test_the_program_prints_its_sources_and_ends_with_one_json_object(tmp_path: Path) -> None:
    (tmp_path / "measured.json").write_text(json.dumps(MEASURED))
    program, out = str(Path(cluster_model.__file__)), tmp_path / "model.json"
    command = [sys.executable, program, "--quick", "--measured", str(tmp_path / "measured.json"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result == json.loads(out.read_text())
    assert set(result) == {"work", "quick_measurements", "numbers", "validation", "mean_error", "rows"}
    assert {row["nodes"] for row in result["rows"]} == {10, 100}
    assert "assumed: bytes/s between nodes: 10 Gbit/s" in done.stdout
    assert out.with_suffix(".png").stat().st_size > 10_000
    done = subprocess.run([*command, "--work", "chain"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "no run of chain was measured; there are: ['repair']\n")
