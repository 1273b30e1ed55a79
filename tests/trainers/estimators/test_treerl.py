"""TreeRL: by hand, and on a bare group."""

import pytest
from refork.replay.trajectory import TaskExperience
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import branch, grown, main

TREERL = ESTIMATORS["treerl"]


def _tree() -> TaskExperience:
    """Leaves 1 0 0 1 0 under the root: mean 2/5. The first rollout is forked before its decisions 1 (once) and 2
    (twice)."""
    mains = [main(0, "rabc", 1.0), main(1, "rx", 0.0)]
    return grown(mains, [branch(2, 0, 1, "ay", 0.0), branch(3, 0, 2, "b", 1.0), branch(4, 0, 2, "bz", 0.0)])


def test_by_hand() -> None:
    values = TREERL(_tree()).values
    root, first, second = 2 / 5, 2 / 4, 2 / 3  # leaves below decision 0: 1 0 1 0, below 1: 1 1 0, below 2: 1
    assert values["t/0/0"] == pytest.approx(
        [
            (2 * first - 2 * root) / 2,
            ((second - root) + (second - first)) / 3**0.5,
            (1 - root) + (1 - second),
            (1 - root) + (1 - second),  # one node with the decision before
        ]
    )
    assert values["t/0/1"] == pytest.approx([2 * (0 - root)] * 2)
    assert values["t/0/2"] == pytest.approx([(0 - root) + (0 - first)] * 2)
    assert values["t/0/3"] == pytest.approx([(1 - root) + (1 - second)])
    assert values["t/0/4"] == pytest.approx([(0 - root) + (0 - second)] * 2)


def test_a_fork_at_the_start_hangs_below_the_root() -> None:
    values = TREERL(grown([main(0, "ra", 1.0)], [branch(1, 0, 0, "r", 0.0)])).values
    assert values["t/0/0"].tolist() == [1.0, 1.0]
    assert values["t/0/1"].tolist() == [-1.0]


@pytest.mark.parametrize("returns", [[1.0, 0.0], [1.0, 0.5, 0.0, 0.25]])
def test_on_a_bare_group_it_is_twice_the_difference_to_the_mean(returns: list[float]) -> None:
    experience = grown([main(i, "rab", value) for i, value in enumerate(returns)])
    mean, n = sum(returns) / len(returns), len(returns)
    plain, leave_one_out = TREERL(experience).values, TREERL(experience, leave_one_out=True).values
    for i, value in enumerate(returns):
        assert plain[f"t/0/{i}"] == pytest.approx([2 * (value - mean)] * 3)
        assert leave_one_out[f"t/0/{i}"] == pytest.approx([2 * (value - mean) * n / (n - 1)] * 3)


def test_leave_one_out_scales_a_tree_by_n_over_n_minus_1() -> None:
    plain, scaled = TREERL(_tree()).values, TREERL(_tree(), leave_one_out=True).values
    for key, values in plain.items():
        assert scaled[key] == pytest.approx(values * 5 / 4)


def test_branches_of_a_rollout_that_was_not_judged_still_count() -> None:
    values = TREERL(grown([main(0, "ra", None), main(1, "rb", 0.0)], [branch(2, 0, 1, "a", 1.0)])).values
    assert values["t/0/0"].tolist() == [0.0, 0.0]
    assert values["t/0/2"].tolist() == [0.5]  # (1 - 1/2) + (1 - 1): it is all that is below its parent
