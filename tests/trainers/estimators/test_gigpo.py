"""GiGPO: by hand, and without its second part."""

import pytest
from hypothesis import given, settings
from refork.replay.trajectory import TaskExperience
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import branch, experiences, grown, main

GIGPO = ESTIMATORS["gigpo"]


def test_by_hand() -> None:
    experience = grown([main(0, "ra", 1.0), main(1, "rab", 0.0), main(2, "rbc", 0.5)])
    credit = GIGPO(experience)
    # all met r, 0 and 1 met a, 1 and 2 met b, only 2 met c
    assert credit.values["t/0/0"] == pytest.approx([0.5 + 0.5, 0.5 + 0.5])
    assert credit.values["t/0/1"] == pytest.approx([-0.5 - 0.5, -0.5 - 0.5, -0.5 - 0.25])
    assert credit.values["t/0/2"] == pytest.approx([0.0, 0.25, 0.0])
    assert credit.counts["merged_steps"] == 7
    assert GIGPO(experience, state_weight=0.5).values["t/0/1"] == pytest.approx([-0.75, -0.75, -0.625])


def test_returns_are_discounted_within_a_state() -> None:
    values = GIGPO(grown([main(0, "r", 1.0), main(1, "rr", 1.0)]), discount=0.5).values
    mean = (1 + 0.5 + 1) / 3  # every visit counts
    assert values["t/0/0"] == pytest.approx([1 - mean])
    assert values["t/0/1"] == pytest.approx([0.5 - mean, 1 - mean])


def test_branches_are_left_out() -> None:
    mains = [main(0, "ra", 1.0), main(1, "ra", 0.0)]
    forked = GIGPO(grown(mains, [branch(2, 0, 1, "a", 1.0)])).values
    for key, values in GIGPO(grown(mains)).values.items():
        assert forked[key].tolist() == values.tolist()
    assert not forked["t/0/2"].any()


@settings(deadline=None)
@given(experience=experiences())
def test_without_weight_it_is_dr_grpo(experience: TaskExperience) -> None:
    gigpo, dr_grpo = GIGPO(experience, state_weight=0.0).values, ESTIMATORS["dr_grpo"](experience).values
    for key, values in dr_grpo.items():
        assert gigpo[key] == pytest.approx(values, abs=1e-12)
