"""The study of credit: equal tuning effort, costs at fixed shares, and what is done is kept."""

import json
from pathlib import Path

import numpy as np
import pytest
from refork.scripts.bench import credit, credit_runs
from refork.scripts.bench.chain import chain_job
from refork.scripts.bench.credit_plot import draw


def _curve(success: list[float]) -> dict[str, list[float]]:
    steps = [10.0 * (k + 1) for k in range(len(success))]
    return {"steps": steps, "steps_executed": steps, "trajectories": steps, "seconds": steps, "success": success}


@pytest.mark.parametrize("name", credit.ESTIMATORS)
def test_every_estimator_tries_as_many_settings_and_all_are_jobs(name: str) -> None:
    settings = credit.tried(name, quick=False)
    assert len(settings) == 6
    assert sorted({s["learning_rate"] for s in settings}) == list(credit.RATES)
    for one in settings:
        chain_job(one, seed=0)


def test_success_is_smoothed_over_the_moments_there_are() -> None:
    assert credit_runs.smooth([1.0, 0.0, 0.5]) == pytest.approx([1.0, 0.5, 0.5])
    assert credit_runs.smooth([0.0] * 5 + [1.0])[-1] == pytest.approx(0.2)


def test_the_cost_of_a_share_is_that_of_the_moment_it_is_reached() -> None:
    curve = _curve([0.1, 0.4, 0.4, 0.4, 0.4, 0.4])
    assert credit_runs.cost_to_reach(curve, 0.3, "steps") == 30.0
    assert credit_runs.cost_to_reach(curve, 0.5, "steps") is None
    assert credit.costs([curve], 0.5, "steps").tolist() == [60.0]


def test_a_share_that_most_seeds_never_reach_has_no_cost() -> None:
    good, bad = _curve([0.6] * 6), _curve([0.1] * 6)
    assert credit.reach([good, bad, bad])["0.3"]["steps"] is None
    assert credit.reach([good, good, bad])["0.3"]["steps"] == pytest.approx(credit.iqm(np.array([10.0, 10.0, 60.0])))
    assert credit.highest([good, good, bad]) == 0.6


def test_half_the_cost_is_a_ratio_of_one_half() -> None:
    fast, slow = [_curve([0.1, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6])], [_curve([0.1] * 3 + [0.6] * 20)]
    found = credit.against(fast, slow)
    assert found["at_share"] == 0.6
    spent = [credit.costs(c, 0.6, "steps")[0] for c in (fast, slow)]
    assert found["crr_over_grpo_executed"] == pytest.approx([spent[0] / spent[1]] * 3)


def test_a_curve_counts_every_branch_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credit_runs, "JUDGED", range(10_000, 10_020))
    first = credit_runs.judged_run(tmp_path, "crr", {"kind": "crr", "learning_rate": 0.2}, 0, 2_000)
    assert len(first["success"]) == credit_runs.POINTS
    assert first["steps"] == sorted(first["steps"])
    assert first["steps"][-1] >= 2_000
    assert first["trajectories"][-1] > first["steps"][-1] / 20  # branches are shorter than whole episodes
    monkeypatch.setattr(credit_runs, "curve", lambda *_: 1 / 0)
    assert credit_runs.judged_run(tmp_path, "crr", {}, 0, 2_000) == first


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    shown = {"heldout": {n: [0.4, 0.5, 0.6] for n in credit.ESTIMATORS}, "budget": 20, "seeds": 3}
    shown["curves"] = {n: [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]] for n in credit.ESTIMATORS}
    draw(json.loads(json.dumps(shown)), tmp_path / "credit.png")
    assert (tmp_path / "credit.png").stat().st_size > 10_000
