"""Losses of guarded learning against values worked out by hand, and the signs by which a constraint binds."""

import math

import pytest
import torch
from refork.trainers.ogsrl.loss import (
    action_policy_loss,
    critic_loss,
    dual_step,
    guarded,
    model_loss,
    pessimistic,
    softmax_policy_loss,
    targets,
)


def test_pessimism_takes_the_lower_return_and_the_higher_cost() -> None:
    twins = torch.tensor([[[1.0, 0.2]], [[3.0, 0.1]]])[None]
    assert pessimistic(twins).tolist() == [[[1.0, pytest.approx(0.2)]]]


def test_targets_bootstrap_the_return_by_gamma_and_costs_by_their_own_discount() -> None:
    found = targets(
        torch.tensor([[1.0, 1.0]]),
        torch.tensor([[0.5, 0.0]]),
        torch.tensor([[[1.0], [1.0]]]),
        torch.tensor([[[4.0, 0.5], [4.0, 0.5]]]),
        torch.tensor([[0.9, 0.0]]),
        0.9,
    )
    assert found[0].flatten().tolist() == pytest.approx([3.0, 0.1 + 0.45, 1.0, 0.1])


def test_the_critics_loss_counts_only_what_has_weight() -> None:
    twins = torch.tensor([[[[1.0, 0.0], [9.0, 9.0]], [[0.0, 0.5], [9.0, 9.0]]]])  # (1, 2, 2, 2)
    goals = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
    terms = critic_loss(twins, goals, torch.tensor([[1.0, 0.0]]))
    assert terms.td_return.item() == pytest.approx(0.5)
    assert terms.td_cost.item() == pytest.approx(0.125)
    assert terms.total.item() == pytest.approx(0.625)


def test_a_cost_lowers_what_is_maximised() -> None:
    value, penalty = guarded(torch.tensor([[[2.0, 0.5, 0.25]]]), torch.tensor([[3.0, 4.0]]))
    assert value.item() == pytest.approx(2 / 8)
    assert penalty.item() == pytest.approx((1.5 + 1.0) / 8)


def test_the_policys_loss_by_hand() -> None:
    log_policy = torch.tensor([[[0.75, 0.25]]]).log()
    clinician = torch.tensor([[[0.5, 0.5]]]).log()
    values = torch.tensor([[[[1.0, 0.0], [3.0, 1.0]]]])
    terms = softmax_policy_loss(log_policy, clinician, values, torch.tensor([[1.0]]), torch.ones(1, 1), 0.1)
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert terms.value.item() == pytest.approx(1.5 / 2)
    assert terms.penalty.item() == pytest.approx(0.25 / 2)
    assert terms.divergence.item() == pytest.approx(divergence)
    assert terms.total.item() == pytest.approx(0.125 - 0.75 + 0.1 * divergence)


def test_forbidden_actions_count_nothing_and_pass_finite_gradients() -> None:
    logits = torch.tensor([[[0.3, -torch.inf, 0.1]]], requires_grad=True)
    log_policy = torch.log_softmax(logits, -1)
    clinician = torch.log_softmax(torch.tensor([[[0.0, -torch.inf, 0.5]]]), -1)
    values = torch.tensor([[[[1.0, 0.0], [9.0, 9.0], [0.5, 0.2]]]])
    terms = softmax_policy_loss(log_policy, clinician, values, torch.tensor([[1.0]]), torch.ones(1, 1), 0.1)
    (gradient,) = torch.autograd.grad(terms.total.sum(), logits)
    assert torch.isfinite(terms.total).all()
    assert torch.isfinite(gradient).all()
    assert gradient[0, 0, 1] == 0


def test_gradients_agree_with_finite_differences() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    clinician = torch.log_softmax(torch.randn(2, 3, 4, dtype=torch.float64), -1)
    values, duals = torch.randn(2, 3, 4, 3, dtype=torch.float64), torch.rand(2, 2, dtype=torch.float64)
    weights = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]], dtype=torch.float64)

    def discrete(x: torch.Tensor) -> torch.Tensor:
        return softmax_policy_loss(torch.log_softmax(x, -1), clinician, values, duals, weights, 0.3).total

    def continuous(x: torch.Tensor) -> torch.Tensor:
        quality = torch.stack([-x.square().sum(-1), x.abs().sum(-1), x.sum(-1)], -1)
        return action_policy_loss(x, torch.tanh(clinician), quality, duals, weights, 0.3).total

    out = torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True)
    change, ended = torch.randn(2, 5, 2, dtype=torch.float64), torch.ones(2, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(discrete, logits)
    assert torch.autograd.gradcheck(continuous, logits)
    assert torch.autograd.gradcheck(lambda x: model_loss(x, change, change[..., 0], ended).total, out)


def test_a_multiplier_grows_exactly_while_its_budget_is_exceeded() -> None:
    """The sign: a constraint that never binds would leave both at 0."""
    duals = torch.tensor([[1.0, 0.0, 0.0]])
    found = dual_step(duals, torch.tensor([[0.0, 0.3, 0.9]]), torch.tensor([0.1, 0.1, 0.1]), 0.5, 0.25)
    assert found[0].tolist() == pytest.approx([0.25, 0.1, 0.25])
    assert dual_step(found, torch.zeros(1, 3), torch.ones(3), 10.0, 9.0).tolist() == [[0.0, 0.0, 0.0]]


def test_the_models_loss_by_hand() -> None:
    out = torch.tensor([[[1.0, 0.0, 2.0, 0.0]]])  # mean 1, deviation 1, reward 2, logit 0
    terms = model_loss(out, torch.tensor([[[3.0]]]), torch.tensor([[1.0]]), torch.tensor([[1.0]]))
    assert terms.change.item() == pytest.approx(2.0 + 0.5 * math.log(2 * math.pi))
    assert terms.reward.item() == pytest.approx(1.0)
    assert terms.ended.item() == pytest.approx(math.log(2))
