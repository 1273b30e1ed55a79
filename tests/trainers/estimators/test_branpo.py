"""BranPO: by hand, its masks, and what ties it to RLOO."""

import numpy as np
import pytest
from refork.trainers.advantages import OUTCOME
from refork.trainers.estimators.branpo import idle_steps
from refork.trainers.estimators.registry import ESTIMATORS

from tests.trainers.estimators.trees import branch, grown, main

BRANPO = ESTIMATORS["branpo"]


def test_by_hand() -> None:
    mains = [main(0, "rabc", 1.0), main(1, "rx", 0.0)]
    branches = [branch(2, 0, 1, "ay", 0.0), branch(3, 0, 1, "a", 0.5), branch(4, 0, 3, "cz", 0.0)]
    values = BRANPO(grown(mains, branches)).values
    # before the forks: R - mean of the group; from a on against 0 and 0.5; from c on, the last fork, against 0
    assert values["t/0/0"].tolist() == [0.5, 0.75, 0.75, 1.0]
    assert values["t/0/1"].tolist() == [-0.5, -0.5]
    assert values["t/0/2"].tolist() == [-0.75, -0.75]
    assert values["t/0/3"].tolist() == [0.0]
    assert values["t/0/4"].tolist() == [-1.0, -1.0]


def test_steps_that_change_nothing_are_masked_and_counted() -> None:
    experience = grown([main(0, "rrab", 1.0), main(1, "rx", 0.0)], [branch(2, 0, 2, "aaa", 0.0)])
    credit = BRANPO(experience)
    assert credit.values["t/0/0"].tolist() == [0.0, 0.5, 1.0, 1.0]
    assert credit.values["t/0/2"].tolist() == [0.0, 0.0, -1.0]  # what the last decision led to is not known
    assert credit.counts["masked_steps"] == 3
    assert idle_steps(main(0, "", 1.0)).tolist() == []


def test_a_suffix_alone_is_compared_with_nothing() -> None:
    values = BRANPO(grown([main(0, "ra", None), main(1, "rb", 0.0)], [branch(2, 0, 1, "a", 1.0)])).values
    assert values["t/0/2"].tolist() == [0.0]


def test_forks_at_the_start_are_rloo() -> None:
    returns = np.array([1.0, 0.0, 0.25, 0.5])
    branches = [branch(i, 0, 0, "ra", value) for i, value in enumerate(returns[1:], 1)]
    values = BRANPO(grown([main(0, "ra", returns[0])], branches)).values
    for i, value in enumerate(returns):
        assert values[f"t/0/{i}"] == pytest.approx([OUTCOME["rloo"](value, returns)] * 2)
