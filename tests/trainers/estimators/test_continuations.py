"""VinePPO and SPO: values by continuations, by hand, and what ties them together."""

import numpy as np
import pytest
from hypothesis import given, settings
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import OUTCOME
from refork.trainers.estimators.continuations import continuation_values
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import branch, experiences, grown, main

VINEPPO, SPO = ESTIMATORS["vineppo"], ESTIMATORS["spo"]


def _everywhere() -> TaskExperience:
    """V(r) = 1/4 from four continuations of two rollouts, V(a) = 1/2, V(b) = 1, V(c) = 0."""
    mains = [main(0, "rab", 1.0), main(1, "rc", 0.0)]
    at_root = [branch(10, 0, 0, "rx", 1.0), branch(11, 0, 0, "rx", 0.0)]
    at_root += [branch(12, 1, 0, "r", 0.0), branch(13, 1, 0, "r", 0.0)]
    later = [branch(20, 0, 1, "a", 1.0), branch(21, 0, 1, "a", 0.0), branch(22, 0, 2, "b", 1.0)]
    return grown(mains, [*at_root, *later, branch(30, 1, 1, "c", 0.0)])


def test_vineppo_by_hand() -> None:
    experience = _everywhere()
    assert continuation_values(experience) == {"r": 0.25, "a": 0.5, "b": 1.0, "c": 0.0}
    credit = VINEPPO(experience)
    assert credit.values["t/0/0"].tolist() == [0.25, 0.5, 0.0]
    assert credit.values["t/0/1"].tolist() == [-0.25, 0.0]
    assert not any(credit.values[b.key].any() for b in experience.branches)  # they value states, and no more
    assert credit.counts["unvalued_steps"] == 0


def test_spo_by_hand() -> None:
    credit = SPO(_everywhere(), segment=2)
    assert credit.values["t/0/0"].tolist() == [0.75, 0.75, 0.0]  # V(b) - V(r), twice; 1 - V(b)
    assert credit.values["t/0/1"].tolist() == [-0.25, -0.25]
    assert SPO(_everywhere(), segment=9).values["t/0/0"].tolist() == [0.75] * 3


def test_a_state_without_a_value_joins_the_segment_before() -> None:
    mains = [main(0, "rab", 1.0), main(1, "rcd", 0.0)]
    branches = [branch(2, 0, 0, "r", 0.5), branch(3, 0, 1, "a", None), branch(4, 0, 2, "b", 0.75)]
    credit = VINEPPO(grown(mains, branches))
    assert credit.values["t/0/0"].tolist() == [0.25, 0.25, 0.25]
    assert credit.values["t/0/1"].tolist() == [-0.5] * 3  # V(r) is of the other's continuation: one state
    assert credit.counts["masked_forks"] == 1


def test_decisions_before_the_first_valued_state_get_nothing_and_are_counted() -> None:
    credit = VINEPPO(grown([main(0, "rab", 1.0), main(1, "rcd", 1.0)], [branch(2, 0, 2, "b", 0.25)]))
    assert credit.values["t/0/0"].tolist() == [0.0, 0.0, 0.75]
    assert credit.values["t/0/1"].tolist() == [0.0] * 3
    assert credit.counts["unvalued_steps"] == 5


@settings(deadline=None)
@given(experience=experiences())
def test_sums_telescope(experience: TaskExperience) -> None:
    """Over a rollout whose start has a value: R - V(s_0), each segment counted once."""
    values, credit = continuation_values(experience), VINEPPO(experience).values
    for rollout in experience.mains:
        states = [d.state_id for d in rollout.decisions]
        if rollout.value is not None and values.keys() >= set(states):
            assert credit[rollout.key].sum() == pytest.approx(rollout.value - values[states[0]], abs=1e-6)


@settings(deadline=None)
@given(experience=experiences())
def test_spo_with_segments_of_one_is_vineppo(experience: TaskExperience) -> None:
    vineppo = VINEPPO(experience).values
    for key, values in SPO(experience, segment=1).values.items():
        assert values.tolist() == vineppo[key].tolist()


def test_one_segment_against_the_others_of_a_group_is_rloo() -> None:
    """Continuations from the start that returned what the other rollouts did."""
    returns = np.array([1.0, 0.0, 0.25, 0.5])
    for i, value in enumerate(returns):
        others = [branch(10 + j, i, 0, "r", returns[j]) for j in range(4) if j != i]
        credit = SPO(grown([main(i, "rab", value)], others), segment=3)
        assert credit.values[f"t/0/{i}"] == pytest.approx([OUTCOME["rloo"](value, returns)] * 3)
