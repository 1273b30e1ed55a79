"""The study of several decision makers: what is done is kept, scores and departures are what they say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refork.scripts.bench import multi_agent, multi_agent_runs
from refork.scripts.bench.multi_agent_plot import draw, line_sizes
from refork.scripts.bench.multi_agent_runs import Cell, departure, judged, known, learnt, source

SHORT = (("updates", 1), ("steps_per_update", 3), ("batch", 8), ("gamma", 0.9), ("target_rate", 0.01))


@pytest.fixture(scope="module")
def cell() -> Cell:
    return replace(multi_agent.cells(True)[0], episodes=20, trainer=SHORT)


def test_every_quality_and_every_number_of_agents_has_a_log_of_its_own() -> None:
    cells = multi_agent.cells(False)
    names = [cell.name for cell in cells]
    assert len(set(names)) == len(names)
    assert {cell.behaviour for cell in cells} == set(multi_agent.QUALITIES)
    sizes = {dict(cell.simulator)["n"] for cell in cells if cell.name.endswith("medium_replay")}
    assert sizes == {2, 3, 5, 8, 10}
    assert len({len(tried) for tried in multi_agent.TRIED.values()}) == 1


def test_what_was_done_is_not_done_again(cell: Cell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = multi_agent.run(tmp_path, cell, "cql", 2, True)
    assert first["settings"] in multi_agent.TRIED["cql"]
    assert "FQE" in first["rule"]
    worst, best = known(tmp_path, cell)["random_return"], known(tmp_path, cell)["expert_return"]
    assert first["scores"] == pytest.approx([100 * (r - worst) / (best - worst) for r in first["returns"]])

    def fail(*_: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(multi_agent_runs, "learnt", fail)
    assert multi_agent.run(tmp_path, cell, "cql", 2, True) == first
    with pytest.raises(AssertionError, match="trained again"):
        judged(tmp_path, cell, "bc", {}, 2)


def test_a_policy_does_not_depart_from_itself_and_a_sure_one_does(cell: Cell) -> None:
    log, clone = source(cell).log, learnt(cell, "bc", {}, 1, 2000)[0]
    assert list(departure(log, [clone], clone).values()) == pytest.approx([0, 0], abs=1e-6)

    def sure(observations: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
        return np.broadcast_to(np.eye(11)[3], (len(observations), 2, 11))

    one, joint = departure(log, [sure], clone).values()
    assert 3 < one < 30  # about 1 / (1/11) - 1 after so few steps
    assert joint > 2 * one


def test_the_picture_is_drawn_of_what_there_is(tmp_path: Path) -> None:
    names = ("line-n2 medium_replay", "line-n10 medium_replay", "spread-n3-discrete medium")
    result: dict[str, Any] = {name: {m: [1.0, 2.0, 3.0] for m in multi_agent.TRIED} for name in names}
    result |= {"truth": {name: {"behaviour": 2.0} for name in names}}
    result |= {"d_cql": {name: {"cfcql": [1.0, 10.0]} for name in names}}
    assert line_sizes(result, "medium_replay") == {2: names[0], 10: names[1]}
    draw(result, tmp_path / "study.png")
    assert (tmp_path / "study.png").stat().st_size > 10_000


def test_an_interval_holds_its_middle() -> None:
    low, middle, high = multi_agent.interval([1.0, 2.0, 3.0, 4.0, 100.0])
    assert low < middle < high
    assert multi_agent.interval([5.0, 5.0]) == [5.0, 5.0, 5.0]


def test_a_gap_is_the_difference_of_the_middles() -> None:
    low, middle, high = multi_agent.gap([10.0, 11.0, 12.0], [1.0, 2.0, 3.0])
    assert middle == pytest.approx(9.0)
    assert 7.0 <= low < middle < high <= 11.0
