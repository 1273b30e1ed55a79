"""Joint actions and the choices of several decision makers."""

import numpy as np
import pytest
from refork.envs.clinical.factored import apart, joint, product_of

SIZES = (2, 3, 2)


def test_numbers_are_mixed_radix_with_the_last_fastest() -> None:
    assert apart(np.array([0, 1, 2, 11]), SIZES).tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 2, 1]]


def test_independent_choices_multiply() -> None:
    shares = np.array([[[0.25, 0.75, 0], [0.5, 0.3, 0.2], [0.9, 0.1, 0]]])
    found = joint(shares, SIZES)
    assert found.shape == (1, 12)
    assert found[0, 1 * 6 + 2 * 2 + 0] == pytest.approx(0.75 * 0.2 * 0.9)
    again = product_of(found, SIZES)
    assert again is not None
    assert again == pytest.approx(shares)


def test_one_decision_maker_is_itself() -> None:
    policy = np.random.default_rng(0).dirichlet(np.ones(5), 3)
    shares = product_of(policy, (5,))
    assert shares is not None
    assert (shares[:, 0] == policy).all()
    assert (joint(shares, (5,)) == policy).all()


def test_choices_that_hang_together_are_no_product() -> None:
    assert product_of(np.array([[0.5, 0, 0, 0.5]]), (2, 2)) is None
