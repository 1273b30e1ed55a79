"""Turn credit: by hand, and zero-sum inside a rollout."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import returns
from refork.trainers.estimators.registry import ESTIMATORS
from refork.trainers.estimators.turn_credit import centred

from tests.trainers.estimators.trees import branch, experiences, grown, main

TURN_CREDIT = ESTIMATORS["turn_credit"]


def test_by_hand() -> None:
    experience = grown([main(0, "rab", 1.0), main(1, "rc", 0.0)], [branch(2, 0, 1, "ad", 0.0)])
    # leaves below r: 1 0 0, below a: 1 0, below b: 1, below c: 0, below d: 0
    values = TURN_CREDIT(experience, beta=2.0).values
    changes = np.array([1 / 2 - 1 / 3, 1 - 1 / 2, 1 - 1])
    assert values["t/0/0"] == pytest.approx(0.5 + 2 * (changes - changes.mean()))
    assert values["t/0/1"] == pytest.approx(-0.5 + 2 * np.array([-1 / 3 + 1 / 6, 1 / 6]))
    assert values["t/0/2"] == pytest.approx(-0.5 + 2 * np.array([-0.5 + 0.25, 0.25]))


def test_the_mean_is_weighted_by_tokens() -> None:
    credits, tokens = np.array([1.0, 0.0, -0.5]), np.array([3.0, 1.0, 4.0])
    assert centred(credits, tokens) == pytest.approx(credits - 1 / 8)
    assert centred(credits, tokens) @ tokens == pytest.approx(0.0)


@settings(deadline=None)
@given(experience=experiences(), beta=st.sampled_from([0.0, 1.0, 3.0]))
def test_it_is_zero_sum_inside_a_rollout(experience: TaskExperience, beta: float) -> None:
    group, values = returns(experience.mains), TURN_CREDIT(experience, beta=beta).values
    for trajectory in experience.trajectories:
        if trajectory.value is not None and len(group):
            expected = trajectory.steps * (trajectory.value - group.mean())
            assert values[trajectory.key].sum() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None)
@given(experience=experiences())
def test_without_weight_it_is_dr_grpo(experience: TaskExperience) -> None:
    found = TURN_CREDIT(experience, beta=0.0).values
    for key, values in ESTIMATORS["dr_grpo"](experience).values.items():
        assert found[key] == pytest.approx(values, abs=1e-6)
