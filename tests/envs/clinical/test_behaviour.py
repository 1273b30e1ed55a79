"""Behaviour policies: softened, marginal, and confounded with an exact odds ratio."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refork.envs.clinical.behaviour import confounded, marginal, softened
from refork.envs.forkable import BadInput

FAVOURED = np.array([True, False, True, False])


def test_softened_by_hand() -> None:
    assert softened(np.array([0.0, 1.0, 0.0, 0.0, 0.0]), 0.2) == pytest.approx([0.05, 0.8, 0.05, 0.05, 0.05])
    assert softened(np.array([0.5, 0.5, 0.0]), 0.1) == pytest.approx([0.475, 0.475, 0.05])
    with pytest.raises(BadInput, match=r"softness: expected a share from 0 to 1, got 1\.2"):
        softened(np.eye(2), 1.2)


def test_a_marginal_policy_by_hand() -> None:
    policy = np.array([[1.0, 0.0], [0.0, 1.0], [0.2, 0.8], [0.6, 0.4]])
    seen = marginal(policy, np.array([3.0, 1.0, 0.0, 0.0]), np.array([0, 0, 1, 1]), 3)
    assert seen[:2] == pytest.approx(np.array([[0.75, 0.25], [0.4, 0.6]]))


def test_confounded_by_hand() -> None:
    """Half are ill; 1/3 + 2/3 over two is 1/2, and the odds 2 and 1/2 have the ratio 4."""
    parts = confounded(np.array([0.1, 0.3, 0.4, 0.2]), FAVOURED, 4.0, np.array(0.5))
    assert parts.having == pytest.approx(np.array([0.1, 0.3, 0.4, 0.2]) * [4 / 3, 2 / 3, 4 / 3, 2 / 3])
    assert parts.without == pytest.approx(np.array([0.1, 0.3, 0.4, 0.2]) * [2 / 3, 4 / 3, 2 / 3, 4 / 3])


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.floats(1e-3, 1e3), st.floats(0, 1))
def test_the_odds_ratio_the_average_and_the_shares_within_are_exact(
    weights: list[float], strength: float, share: float
) -> None:
    base = np.array(weights) / sum(weights)
    parts = confounded(base, FAVOURED, strength, np.array(share))
    q, p = parts.having[FAVOURED].sum(), parts.without[FAVOURED].sum()
    assert q * (1 - p) / (p * (1 - q)) == pytest.approx(strength, rel=1e-6)
    assert share * parts.having + (1 - share) * parts.without == pytest.approx(base, abs=1e-9)
    for part in (parts.having, parts.without):
        assert part.sum() == pytest.approx(1)
        assert (part >= 0).all()
        assert part[0] / part[2] == pytest.approx(base[0] / base[2])
        assert part[1] / part[3] == pytest.approx(base[1] / base[3])


def test_strength_one_changes_nothing_and_certainty_stays_certain() -> None:
    base = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0, 0.5, 0], [0, 1, 0, 0]])
    parts = confounded(base, FAVOURED, 1.0, np.full(3, 0.3))
    assert parts.having == pytest.approx(base)
    strong = confounded(base, FAVOURED, 50.0, np.full(3, 0.3))
    assert strong.having[1:] == pytest.approx(base[1:])
    assert strong.without[1:] == pytest.approx(base[1:])


@pytest.mark.parametrize("strength", [0.0, -1.0, float("nan"), float("inf")])
def test_an_odds_ratio_that_is_none_is_refused(strength: float) -> None:
    with pytest.raises(BadInput, match="strength: the odds ratio has to be above 0"):
        confounded(np.full(4, 0.25), FAVOURED, strength, np.array(0.5))
