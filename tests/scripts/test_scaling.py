"""The bench of scaling: its ratios on runs that are known, one run of its own, its toy tasks."""

from pathlib import Path

import pytest
from refork.scripts.bench.scaling import bytes_per_step, ratios, task_set
from refork.scripts.bench.scaling_probes import serialised, update_costs
from refork.scripts.bench.scaling_runs import Measured, Place, Work, chain, measure, repair
from refork.scripts.bench.toy_tasks import toy_set


def run(place: Place, seconds: float) -> Measured:
    """60 episodes in `seconds`, after a slow first update."""
    return Measured("repair", place, 9.0, [99.0, seconds - 2.0], [50.0, 2.0], [1, 60])


def test_ratios_leave_out_the_first_update_and_what_was_not_run() -> None:
    runs = [run(Place(1), 30.0), run(Place(2), 16.0), run(Place(1, staleness=1), 25.0), run(Place(), 40.0)]
    assert ratios(runs) == {
        "speedup_2_actors": 1.875,
        "speedup_2_learners": None,
        "nodes_3_over_1": None,
        "first_step_s": 9.0,
        "stale_over_sync": 1.2,
    }
    nodes = [run(Place(1), 30.0), run(Place(1, nodes=1), 30.0), run(Place(3, nodes=3), 12.0)]
    assert ratios(nodes)["nodes_3_over_1"] == 2.5


def test_bytes_of_a_step_are_the_weights_and_every_group() -> None:
    costs = {"weights_bytes": 1000.0, "ask_bytes": 10.0, "answer_bytes": 500.0}
    assert bytes_per_step(Work("repair", (), 2, 4), costs) == 1000 + 4 * 510


def test_what_is_sent_is_counted_with_its_arrays() -> None:
    found = update_costs(chain(2), most=3)
    assert found["weights_bytes"] > 8 * 4  # eight float32 weights and more
    assert found["answer_bytes"] > 10 * found["ask_bytes"]
    assert all(value > 0 for value in found.values())
    assert serialised(b"x" * 5000) == pytest.approx(5000, abs=100)


def test_toy_tasks_are_all_different(tmp_path: Path) -> None:
    tasks = toy_set(tmp_path, 9).tasks
    assert len({task.base_id for task in tasks}) == len({task.instance_id for task in tasks}) == 9
    assert [task.bugs for task in tasks[:7]] == [1, 1, 1, 2, 2, 2, 3]


def test_a_set_that_is_there_is_taken_and_else_a_toy_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with task_set(tmp_path, 4) as folder:
        assert folder == tmp_path
    with task_set(tmp_path / "none", 4) as folder:
        assert len(list((folder / "bases").iterdir())) == 4
    assert not folder.exists()
    assert "no task set is built; 4 toy tasks are taken" in capsys.readouterr().out


def test_a_run_says_what_it_did_and_how_long_it_took() -> None:
    found = measure(chain(4), Place())
    assert len(found.collect_s) == len(found.update_s) == len(found.episodes) == len(found.units_s) == 4
    assert [len(groups) for groups in found.units_s] == [8] * 4
    assert all(episodes >= 24 for episodes in found.episodes)  # 8 groups of 3, and branches
    assert sum(map(sum, found.units_s)) < sum(found.collect_s) < found.first_step_s + 10
    assert found.rate > 1


def test_a_run_that_fails_ends_the_bench_with_what_was_said() -> None:
    with pytest.raises(SystemExit, match="nowhere"):
        measure(repair(Path("/nowhere"), 2, 2), Place())
