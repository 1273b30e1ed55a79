"""Outcome estimators: hand-computed values, masks, degenerate groups."""

import itertools

import numpy as np
import pytest
from refork.trainers.advantages import OUTCOME, outcome_credit

from tests.trainers.made import group, main

STD = (1 / 3) ** 0.5  # unbiased, of 1, 0, 0, 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", [0.5 / (STD + 1e-6), -0.5 / (STD + 1e-6)]),
        ("dr_grpo", [0.5, -0.5]),
        ("rloo", [1 - 1 / 3, 0 - 2 / 3]),
        ("maxrl", [0.5 / (0.5 + 1e-6), -0.5 / (0.5 + 1e-6)]),
    ],
)
def test_values_by_hand(name: str, expected: list[float]) -> None:
    credit = outcome_credit(group([main(0, 1.0), main(1, 0.0), main(2, 0.0), main(3, 1.0)]), name)
    assert credit.values["t/0/0"] == pytest.approx([expected[0]] * 3, abs=1e-12)
    assert credit.values["t/0/1"] == pytest.approx([expected[1]] * 3, abs=1e-12)
    assert credit.counts == {"zero_variance_groups": 0}


@pytest.mark.parametrize("name", sorted(OUTCOME))
def test_what_was_not_judged_gets_nothing_and_is_in_no_mean(name: str) -> None:
    mains = [main(0, 1.0), main(1, "infra"), main(2, 0.0), main(3, "timeout")]
    credit = outcome_credit(group(mains), name)
    alone = outcome_credit(group([main(0, 1.0), main(2, 0.0)]), name)
    assert credit.values["t/0/0"].tolist() == alone.values["t/0/0"].tolist() != [0.0] * 3
    assert credit.values["t/0/1"].tolist() == credit.values["t/0/3"].tolist() == [0.0] * 3


@pytest.mark.parametrize("name", sorted(OUTCOME))
@pytest.mark.parametrize(
    ("returns", "zero"), [([1.0], 1), ([0.0, 0.0], 1), ([1.0, "infra"], 1), (["infra", "infra"], 0)]
)
def test_a_group_without_spread_teaches_nothing(name: str, returns: list, zero: int) -> None:
    credit = outcome_credit(group([main(i, r) for i, r in enumerate(returns)]), name)
    assert [v.tolist() for v in credit.values.values()] == [[0.0] * 3] * len(returns)
    assert credit.counts == {"zero_variance_groups": zero}


def test_rloo_is_the_mean_of_the_others() -> None:
    values = np.random.default_rng(0).random(7)
    for i, value in enumerate(values):
        assert OUTCOME["rloo"](value, values) == pytest.approx(value - np.delete(values, i).mean(), abs=1e-12)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("p", [0.03, 0.4, 0.9])
def test_maxrl_climbs_log_success_to_order_n_minus_1(size: int, p: float) -> None:
    """Exact, over all outcomes of a group: one decision, success with probability p = sigmoid(theta), so the score is
    R - p; the gradient of -sum_{k<n} (1 - p)^k / k by theta is sum_{k<n} (1 - p)^(k - 1) p (1 - p)."""
    found = 0.0
    for returns in itertools.product([0.0, 1.0], repeat=size):
        group = np.array(returns)
        chance = np.where(group == 1.0, p, 1 - p).prod()
        found += chance * np.mean([OUTCOME["maxrl"](value, group) * (value - p) for value in returns])
    expected = sum((1 - p) ** (k - 1) * p * (1 - p) for k in range(1, size))
    assert found == pytest.approx(expected, rel=1e-4)
    dr_grpo = p * (1 - p) * (size - 1) / size  # what the plain difference climbs
    assert found > dr_grpo


def test_maxrl_says_nothing_where_no_return_is_positive() -> None:
    assert [OUTCOME["maxrl"](v, np.array([-1.0, 0.0])) for v in (-1.0, 0.0)] == [0.0, 0.0]
