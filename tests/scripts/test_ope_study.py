"""What the study of off-policy estimators measures, on numbers that can be checked by hand."""

import pytest
from refork.envs.simulators import open_simulator
from refork.scripts.bench.ope import measures, scores
from refork.scripts.bench.ope_cases import CASES, tables_of


def _said(value: float | None, status: str, half: float = 0.1) -> dict[str, object]:
    low, high = (None, None) if value is None else (value - half, value + half)
    return {"value": value, "low": low, "high": high, "status": status}


RUN = {
    "truth": {"a": 0.0, "b": 0.5, "c": 1.0, "d": 0.2},
    "found": {
        "a": {"WIS": _said(0.05, "ok")},
        "b": {"WIS": _said(0.9, "ok")},
        "c": {"WIS": _said(0.6, "unsupported")},
        "d": {"WIS": _said(None, "not defined")},
    },
}


def test_every_measure_is_what_it_says() -> None:
    found = measures(RUN, "WIS")
    assert found["supported"] == pytest.approx(0.5)
    assert found["bias"] == pytest.approx((0.05 + 0.4 - 0.4) / 3)
    assert found["rmse"] == pytest.approx(((0.05**2 + 0.4**2 + 0.4**2) / 3) ** 0.5)
    assert found["rmse_supported"] == pytest.approx(((0.05**2 + 0.4**2) / 2) ** 0.5)
    assert found["spearman"] == pytest.approx(0.5)
    assert found["regret@1"] == pytest.approx(0.5)
    assert found["coverage"] == pytest.approx(0.5)
    assert found["wrong_unmarked"] == pytest.approx(0.5)
    assert found["wrong_marked"] == pytest.approx(0.5)


def test_intervals_are_over_logs() -> None:
    found = scores("x/500", [RUN, RUN])
    assert found["x/500/rmse"]["WIS"] == pytest.approx([measures(RUN, "WIS")["rmse"]] * 3)
    assert "spearman_supported" not in {name.split("/")[-1] for name in found}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_policies_differ_in_value_and_are_distributions(case: object) -> None:
    simulator = open_simulator(case.env, case.options)  # type: ignore[attr-defined]
    tables = tables_of(simulator)
    assert len(tables) >= 8
    assert all(table.sum(-1) == pytest.approx(1) for table in tables.values())
