"""RTMC: by hand, and without merges."""

import pytest
from refork.replay.trajectory import TaskExperience
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import branch, grown, main

RTMC = ESTIMATORS["rtmc"]


def _merged() -> TaskExperience:
    """All begin in r; two take action 0 there. 0 and 2 meet in a and act differently; b and c are met once."""
    mains = [main(0, "ra", 1.0, [0, 0]), main(1, "rb", 0.0, [0, 0]), main(2, "rca", 0.5, [1, 0, 1])]
    return grown(mains)


def test_by_hand() -> None:
    values = RTMC(_merged(), prior=0.0).values
    assert values["t/0/0"] == pytest.approx([0.5 - 0.5, 1.0 - 0.75])
    assert values["t/0/1"] == pytest.approx([0.0, 0.0 - 0.5])  # b is met once: against the group
    assert values["t/0/2"] == pytest.approx([0.5 - 0.5, 0.5 - 0.5, 0.5 - 0.75])


def test_the_prior_shrinks_what_was_seen_seldom() -> None:
    experience = grown([main(0, "r", 1.0, [0]), main(1, "r", 1.0, [0]), main(2, "r", 0.0, [1])])
    plain, shrunk = RTMC(experience, prior=0.0).values, RTMC(experience, prior=2.0).values
    assert plain["t/0/0"] == pytest.approx([1 - 2 / 3])
    assert shrunk["t/0/0"] == pytest.approx([2 / 4 * (1 - 2 / 3)])
    assert shrunk["t/0/2"] == pytest.approx([1 / 3 * (0 - 2 / 3)])


def test_a_rollout_that_comes_back_counts_once() -> None:
    values = RTMC(grown([main(0, "rrr", 1.0, [0, 0, 1]), main(1, "r", 0.0, [0])]), prior=0.0).values
    assert values["t/0/0"] == pytest.approx([0.5 - 0.5, 0.5 - 0.5, 1.0 - 0.5])


def test_without_merges_and_prior_it_is_the_group_baseline() -> None:
    mains = [main(0, "ab", 1.0), main(1, "cd", 0.0), main(2, "efg", 0.25)]
    baseline = ESTIMATORS["dr_grpo"](grown(mains)).values
    at_root = [main(0, "rb", 1.0, [0, 0]), main(1, "rd", 0.0, [1, 0]), main(2, "rfg", 0.25, [2, 0, 0])]
    for experience in (grown(mains), grown(at_root)):  # a common start with different actions is none
        for key, values in RTMC(experience, prior=0.0).values.items():
            assert values == pytest.approx(baseline[key])


def test_branches_are_left_out() -> None:
    forked = RTMC(grown(_merged().mains, [branch(9, 0, 1, "a", 0.0)])).values
    for key, values in RTMC(_merged()).values.items():
        assert forked[key].tolist() == values.tolist()
