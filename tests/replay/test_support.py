"""Support, safety and change of dose against shares counted by hand."""

from dataclasses import replace

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, Limit, LogSpec, ObservationSpec
from refork.replay.support import (
    cost_log,
    costs,
    dose_change,
    dose_change_continuous,
    ood_share,
    rare_share,
    watched,
)
from refork.replay.transitions import Transitions

SPO2 = Limit("o:SpO2", "below", 92.0)


def _log(kind: str = "vector", names: tuple[str, ...] = ("hr", "SpO2")) -> Transitions:
    """Two episodes of two steps; SpO2 of the rows: 95 91 93 | 90 96 80."""
    seen = np.array([[60, 95], [70, 91], [80, 93], [60, 90], [60, 96], [60, 80]], np.float32)
    states = kind == "states"
    return Transitions(
        LogSpec("", ObservationSpec(kind, 6 if states else 2, names), ActionSpec("discrete", (3,)), "units"),  # type: ignore[arg-type]
        observations=np.arange(6, dtype=np.int32) if states else seen,
        actions=np.array([[0], [1], [2], [0]]),
        rewards=np.zeros(4, np.float32),
        terminated=np.array([False, True, False, True]),
        truncated=np.zeros(4, bool),
        starts=np.array([0, 2, 4]),
        patients=np.array([0, 1]),
        behaviour=np.full(4, 1 / 3, np.float32),
        dt=np.ones(4, np.float32),
        state_features=seen if states else None,
    )


@pytest.mark.parametrize("kind", ["vector", "states"])
def test_a_cost_is_of_the_row_that_a_transition_led_to(kind: str) -> None:
    log = _log(kind)
    assert costs(log, SPO2, np.arange(4)).tolist() == [1, 0, 0, 1]
    assert costs(log, SPO2, np.array([3])).tolist() == [1]
    assert cost_log(log, SPO2).rewards.tolist() == [1, 0, 0, 1]
    assert "SpO2 < 92" in cost_log(log, SPO2).spec.reward


def test_the_limit_itself_is_no_violation() -> None:
    assert Limit("x", "below", 2.0).violated(np.array([1.9, 2.0, 2.1])).tolist() == [True, False, False]
    assert Limit("x", "above", 2.0).violated(np.array([1.9, 2.0, 2.1])).tolist() == [False, False, True]


def test_only_columns_that_exist_are_watched_and_a_missing_one_is_named() -> None:
    assert [str(limit) for limit in watched(_log())] == ["o:SpO2 < 92"]
    assert [str(limit) for limit in watched(_log("states"))] == ["o:SpO2 < 92"]
    assert watched(replace(_log("states"), state_features=None)) == ()
    with pytest.raises(BadInput, match=r"column 'o:lactate' .* there are: hr, SpO2"):
        costs(_log(), Limit("o:lactate", "above", 4.0), np.arange(4))


def test_columns_are_found_by_name_wherever_they_stand() -> None:
    log = _log()
    swapped = Transitions(
        **{k: v for k, v in vars(_log(names=("SpO2", "hr"))).items() if k != "observations"},
        observations=log.observations[:, ::-1].copy(),
    )
    assert costs(swapped, SPO2, np.arange(4)).tolist() == costs(log, SPO2, np.arange(4)).tolist()


def test_shares_out_of_support() -> None:
    policy = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    density = np.array([[-1.0, -9.0, -9.0], [-1.0, -9.0, -1.0]])
    assert ood_share(policy, density, -5.0) == pytest.approx((0.5 + 0.25) / 2)
    assert ood_share(policy, density, -5.0, np.array([1.0, 3.0])) == pytest.approx((0.5 + 0.75) / 4)
    assert ood_share(np.ones(4), np.array([-9.0, 0, 0, 0]), -5.0) == 0.25
    assert rare_share(policy, np.array([[0.9, 0.005, 0.095], [0.5, 0.25, 0.25]])) == pytest.approx(0.25)


def test_change_by_logged_dose() -> None:
    policy = np.array([[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    first, second = dose_change(np.array([0.0, 1.0, 2.0]), np.array([0, 1, 1]), policy)
    assert (first.level, first.count, first.lower, first.same, first.higher) == (0.0, 1, 0.0, 0.0, 1.0)
    assert (second.count, second.lower, second.same, second.higher) == pytest.approx((2, 0.1, 0.15, 0.75))
    assert second.mean == pytest.approx((1.3 + 2.0) / 2)


def test_change_of_continuous_doses() -> None:
    logged = np.arange(10.0)
    low, high = dose_change_continuous(logged, np.where(logged < 5, logged + 2, logged + 0.5), bins=2)
    assert (low.count, low.higher, low.same, low.level) == (5, 1.0, 0.0, 2.0)
    assert (high.count, high.higher, high.same) == (5, 0.0, 1.0)
