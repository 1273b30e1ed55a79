"""The loss of discrete CQL against values worked out by hand."""

import math

import pytest
import torch
from refork.trainers.cql.loss import cql_loss, double_q_target

Q = torch.tensor([[[1.0, 2.0, 0.0]]])


def test_the_loss_is_td_plus_alpha_times_the_gap() -> None:
    terms = cql_loss(Q, torch.tensor([[0]]), torch.tensor([[1.5]]), None, alpha=2.0)
    gap = math.log(math.e + math.e**2 + 1) - 1.0
    assert terms.td.item() == pytest.approx(0.5 * 0.5**2)
    assert terms.conservative.item() == pytest.approx(gap, abs=1e-6)
    assert terms.total.item() == pytest.approx(0.125 + 2 * gap, abs=1e-6)


def test_only_allowed_actions_are_pushed_down() -> None:
    allowed = torch.tensor([[[True, False, True]]])
    terms = cql_loss(Q, torch.tensor([[0]]), torch.tensor([[1.0]]), allowed, alpha=1.0)
    assert terms.conservative.item() == pytest.approx(math.log(math.e + 1) - 1.0, abs=1e-6)


def test_a_large_error_counts_linearly() -> None:
    terms = cql_loss(Q, torch.tensor([[0]]), torch.tensor([[4.0]]), None, alpha=0.0)
    assert terms.total.item() == pytest.approx(3.0 - 0.5)


def test_weights_scale_the_temporal_difference_alone() -> None:
    terms = cql_loss(Q, torch.tensor([[0]]), torch.tensor([[1.5]]), None, 2.0, torch.tensor([[3.0]]))
    assert terms.td.item() == pytest.approx(3 * 0.125)
    assert terms.conservative.item() == pytest.approx(math.log(math.e + math.e**2 + 1) - 1.0, abs=1e-6)


def test_the_target_takes_the_online_choice_at_the_targets_value() -> None:
    next_q = torch.tensor([[[0.0, 3.0, 9.0]]])
    next_target = torch.tensor([[[5.0, 7.0, 11.0]]])
    allowed = torch.tensor([[[True, True, False]]])
    found = double_q_target(torch.tensor([[1.0]]), torch.tensor([[0.5]]), next_q, next_target, allowed)
    assert found.item() == 1.0 + 0.5 * 7.0


def test_a_terminated_step_has_no_future() -> None:
    found = double_q_target(torch.tensor([[1.0]]), torch.tensor([[0.0]]), Q, Q, None)
    assert found.item() == 1.0


def test_gradients_against_finite_differences() -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 3, 4).double().requires_grad_()
    actions, targets = torch.randint(4, (2, 3)), torch.randn(2, 3).double()
    allowed = torch.rand(2, 3, 4) < 0.8
    allowed.scatter_(-1, actions[..., None], True)
    assert torch.autograd.gradcheck(lambda x: cql_loss(x, actions, targets, allowed, 0.7).total, (q,))
