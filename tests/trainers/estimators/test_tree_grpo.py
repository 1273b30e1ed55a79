"""Tree-GRPO: by hand, and on a bare group."""

import numpy as np
import pytest
from hypothesis import given, settings
from refork.replay.trajectory import TaskExperience
from refork.trainers.estimators.registry import ESTIMATORS
from refork.trainers.estimators.tree import Tree
from refork.trainers.estimators.tree_grpo import leaf_advantages

from tests.trainers.estimators.trees import branch, experiences, grown, main

TREE_GRPO = ESTIMATORS["tree_grpo"]


def test_by_hand() -> None:
    mains = [main(0, "rab", 1.0), main(1, "rx", 0.0)]
    values = TREE_GRPO(grown(mains, [branch(2, 0, 1, "ay", 0.0), branch(3, 0, 2, "b", 1.0)])).values
    deviation = (1 / 3) ** 0.5 + 1e-6  # of 1, 0, 0, 1 around 1/2
    good, bad, other = 1 / 3 + 0.5 / deviation, -2 / 3 - 0.5 / deviation, 0 - 0.5 / deviation
    assert values["t/0/0"] == pytest.approx([(2 * good + bad) / 3, good, good])
    assert values["t/0/1"] == pytest.approx([other] * 2)
    assert values["t/0/2"] == pytest.approx([bad] * 2)
    assert values["t/0/3"] == pytest.approx([good])


def test_on_a_bare_group_it_is_grpo() -> None:
    experience = grown([main(i, "rab", value) for i, value in enumerate([1.0, 0.5, 0.0])])
    grpo = ESTIMATORS["grpo"](experience).values
    for key, values in TREE_GRPO(experience).values.items():
        assert values == pytest.approx(grpo[key])


@settings(deadline=None)
@given(experience=experiences())
def test_within_a_tree_the_part_of_the_siblings_sums_to_0(experience: TaskExperience) -> None:
    tree = Tree(experience)
    group = np.array([tree.values[leaf.key] for leaf in tree.leaves])
    leaves = leaf_advantages(tree)
    for rollout in experience.mains:
        below = tree.below(rollout, -1)
        z = [
            0.0 if len(group) < 2 else (tree.values[leaf.key] - group.mean()) / (group.std(ddof=1) + 1e-6)
            for leaf in below
        ]
        assert sum(leaves[leaf.key] for leaf in below) == pytest.approx(sum(z), abs=1e-9)
