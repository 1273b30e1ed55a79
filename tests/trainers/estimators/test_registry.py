"""What every estimator promises, over the whole registry."""

from dataclasses import is_dataclass, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.replay.trajectory import TaskExperience
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import branch, experiences, grown, judged, main, shifted

every_estimator = pytest.mark.parametrize("name", sorted(ESTIMATORS))
NOT_SHIFTED = {"maxrl"}  # divides by the mean
NOT_SCALED = {"maxrl", "grpo", "tree_grpo"}  # divide by mean or deviation


def _values(name: str, experience: TaskExperience) -> dict[str, np.ndarray]:
    """With zeros for trajectories that it says nothing of."""
    given = ESTIMATORS[name](experience).values
    return {t.key: given.get(t.key, np.zeros(t.steps)) for t in experience.trajectories}


def _equal(left: dict[str, np.ndarray], right: dict[str, np.ndarray], factor: float = 1.0) -> None:
    for key, values in right.items():
        assert left[key] == pytest.approx(factor * values, abs=1e-6), key


def test_the_registry_is_the_list_of_the_methods_page() -> None:
    assert set(ESTIMATORS) == {
        *("grpo", "dr_grpo", "rloo", "maxrl", "vineppo", "treerl", "tree_grpo"),
        *("gigpo", "rtmc", "spo", "turn_credit", "branpo", "crr", "cost_aware"),
    }
    assert all(is_dataclass(e.options) for e in ESTIMATORS.values())


@every_estimator
@settings(max_examples=60, deadline=None)
@given(experience=experiences())
def test_advantages_are_finite_and_one_for_each_decision(name: str, experience: TaskExperience) -> None:
    credit = ESTIMATORS[name](experience)
    steps = {t.key: t.steps for t in experience.trajectories}
    for key, values in credit.values.items():
        assert values.shape == (steps[key],)
        assert values.dtype == np.float64
        assert np.isfinite(values).all()
    assert all(isinstance(count, int) and count >= 0 for count in credit.counts.values())


@every_estimator
@settings(max_examples=60, deadline=None)
@given(experience=experiences())
def test_what_was_not_judged_gets_nothing_and_takes_no_part(name: str, experience: TaskExperience) -> None:
    found = _values(name, experience)
    for trajectory in experience.trajectories:
        if trajectory.value is None:
            assert not found[trajectory.key].any()
    if name != "crr":  # it spreads the mirrored differential over the alternatives that were asked for
        _equal(found, {k: v for k, v in _values(name, judged(experience)).items() if k in found})


@every_estimator
@settings(max_examples=40, deadline=None)
@given(experience=experiences(), order=st.randoms(use_true_random=False))
def test_the_order_of_trajectories_does_not_matter(name: str, experience: TaskExperience, order: Random) -> None:
    mains, branches, forks = list(experience.mains), list(experience.branches), list(experience.forks)
    for items in (mains, branches, forks):
        order.shuffle(items)
    other = replace(experience, mains=tuple(mains), branches=tuple(branches), forks=tuple(forks))
    _equal(_values(name, other), _values(name, experience))
    assert ESTIMATORS[name](other).counts == ESTIMATORS[name](experience).counts


@every_estimator
@settings(max_examples=40, deadline=None)
@given(experience=experiences())
def test_only_differences_of_returns_matter(name: str, experience: TaskExperience) -> None:
    if name not in NOT_SHIFTED:
        _equal(_values(name, shifted(experience, 1.0, 1.0)), _values(name, experience))
    if name not in NOT_SCALED:
        _equal(_values(name, shifted(experience, 4.0, 0.0)), _values(name, experience), 4.0)


@every_estimator
@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_without_differences_nothing_is_taught_and_it_is_counted(name: str, value: float) -> None:
    alone = grown([main(0, "rab", value)])
    alike = grown([main(i, "rab"[: 1 + i], value) for i in range(3)], [branch(9, 1, 1, "ac", value)])
    for experience in (alone, alike):
        credit = ESTIMATORS[name](experience)
        assert not any(v.any() for v in credit.values.values())
        assert credit.counts["zero_variance_groups"] == 1


@every_estimator
def test_a_group_in_which_nothing_was_judged_teaches_nothing(name: str) -> None:
    lost = grown([main(0, "ra", None), main(1, "", None)], [branch(9, 0, 1, "a", None), branch(8, 0, 0, "", None)])
    credit = ESTIMATORS[name](lost)
    assert not any(v.any() for v in credit.values.values())
    assert credit.counts["zero_variance_groups"] == 0


@pytest.mark.parametrize("name", ["vineppo", "spo", "treerl", "tree_grpo", "turn_credit", "branpo", "cost_aware"])
def test_forks_and_what_was_masked_of_them_are_counted(name: str) -> None:
    mains = [main(0, "rab", 1.0), main(1, "rac", 0.0)]
    branches = [branch(2, 0, 1, "a", 0.0), branch(3, 0, 1, "a", None), branch(4, 1, 0, "r", None)]
    counts = ESTIMATORS[name](replace(grown(mains, branches), skipped=3)).counts
    assert (counts["forks"], counts["masked_forks"], counts["masked_branches"]) == (2, 1, 2)
    assert counts["skipped_points"] == 3


@every_estimator
def test_all_branches_masked_leave_the_main_rollouts_defined(name: str) -> None:
    mains = [main(0, "rab", 1.0), main(1, "rac", 0.0)]
    lost = [branch(2, 0, 1, "a", None), branch(3, 1, 0, "r", None)]
    _equal(_values(name, grown(mains, lost)), _values(name, grown(mains)))
