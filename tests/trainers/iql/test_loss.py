"""Implicit Q-learning against values worked out by hand."""

import math

import pytest
import torch
from refork.trainers.iql.loss import policy_loss, value_loss

ONE = torch.tensor([[1.0]])


@pytest.mark.parametrize(("value", "expected"), [(0.0, 0.9 * 1.0), (3.0, 0.1 * 4.0)])
def test_the_expectile_weighs_both_sides(value: float, expected: float) -> None:
    """V below min Q costs `expectile`, above it the rest."""
    twins = torch.tensor([[[1.0], [2.0]]])
    terms = value_loss(twins, ONE, torch.tensor([[value]]), ONE, expectile=0.9)
    assert terms.expectile.item() == pytest.approx(expected)
    assert terms.td.item() == pytest.approx(1.0)  # only the second twin errs
    assert terms.total.item() == pytest.approx(expected + 1.0)


def test_the_minimiser_is_the_expectile() -> None:
    """Of {0, 1} at tau: tau (1 - v) = (1 - tau) v, v = tau."""
    value = torch.full((1, 2), 0.8, requires_grad=True)
    terms = value_loss(torch.zeros(1, 2, 2), torch.zeros(1, 2), value, torch.tensor([[0.0, 1.0]]), expectile=0.8)
    terms.total.sum().backward()
    assert value.grad is not None
    assert value.grad.sum().item() == pytest.approx(0.0, abs=1e-6)


def test_better_actions_weigh_more_up_to_a_cut() -> None:
    likelihood = torch.log(torch.tensor([[0.5, 0.25]]))
    terms = policy_loss(likelihood, torch.tensor([[1.0, -1.0]]), beta=2.0, largest=100.0)
    assert terms.weight.item() == pytest.approx((math.e**2 + math.e**-2) / 2)
    assert terms.total.item() == pytest.approx((math.e**2 * math.log(2) + math.e**-2 * math.log(4)) / 2)
    assert policy_loss(likelihood, torch.tensor([[9.0, 9.0]]), 2.0, 100.0).weight.item() == 100.0


def test_gradients_against_finite_differences() -> None:
    torch.manual_seed(0)
    twins, value = torch.randn(2, 2, 3).double().requires_grad_(), torch.randn(2, 3).double().requires_grad_()
    targets, frozen = torch.randn(2, 3).double(), torch.randn(2, 3).double()
    assert torch.autograd.gradcheck(lambda q, v: value_loss(q, targets, v, frozen, 0.8).total, (twins, value))
    assert torch.autograd.gradcheck(lambda x: policy_loss(x, targets, 1.0, 3.0).total, (value,))
