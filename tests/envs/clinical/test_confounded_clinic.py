"""The clinic of one choice against values worked out by hand."""

import numpy as np
import pytest
from refork.envs.clinical.confounded_clinic import ConfoundedClinic
from refork.envs.forkable import BadInput
from refork.envs.simulators import open_simulator


def _act(*strong: float):  # type: ignore[no-untyped-def]
    table = np.array([[1 - p, p] for p in strong])
    return lambda states, _allowed: table[states][:, None]


def test_the_strong_treatment_is_right_in_one_condition() -> None:
    clinic = ConfoundedClinic(steps=1)
    assert clinic.truth(_act(0, 1, 0)).value == pytest.approx((0.5 + 0.65 + 0.5) / 3)
    assert clinic.truth(_act(1, 1, 0)).value == pytest.approx((0.45 + 0.65 + 0.5) / 3)
    assert clinic.truth(_act(0, 0, 1)).value == pytest.approx((0.5 + 0.5 + 0.45) / 3)


def test_clinicians_who_see_frailty_do_better_than_chance() -> None:
    """Odds 5: with halves given each, sqrt(5) to 1 for the robust."""
    clinic = ConfoundedClinic(5.0, steps=1)
    p = 5**0.5 / (1 + 5**0.5)
    robust = ((1 - p) * 0.5 + p * 0.75 + (1 - p) * 0.5 + p * 0.85 + 0.55) / 3
    frail = (p * 0.5 + (1 - p) * 0.15 + p * 0.5 + (1 - p) * 0.45 + 0.4) / 3
    assert clinic.behaviour_truth("confounded").value == pytest.approx((robust + frail) / 2)
    assert ConfoundedClinic(5.0, steps=8).behaviour_truth("confounded").value == pytest.approx(4 * (robust + frail))
    assert clinic.policy("confounded") is None
    assert ConfoundedClinic(1.0).policy("confounded") is not None


@pytest.mark.parametrize(("strength", "seems"), [(1.0, 0.45), (5.0, 0.15 + 0.6 * 5**0.5 / (1 + 5**0.5))])
def test_what_the_log_says_of_the_strong_treatment(strength: float, seems: float) -> None:
    log = ConfoundedClinic(strength).log("confounded", 20_000, 0)
    rows = np.delete(log.observations, log.starts[1:] + np.arange(20_000))
    chosen = (rows == 0) & (log.actions[:, 0] == 1)
    assert log.rewards[chosen].mean() == pytest.approx(seems, abs=0.01)
    assert log.actions.mean() == pytest.approx(0.5, abs=0.01)


def test_it_is_opened_by_its_id_and_says_what_it_cannot_do() -> None:
    clinic = open_simulator("refork/ConfoundedClinic-v0", {"strength": 2.0})
    with pytest.raises(BadInput, match="no behaviour 'expert'"):
        clinic.log("expert", 10, 0)
    with pytest.raises(BadInput, match="expected 1 or more"):
        ConfoundedClinic(0.5)
