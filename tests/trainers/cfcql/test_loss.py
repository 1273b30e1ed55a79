"""The loss of CFCQL against values worked out by hand, and its limits."""

import math

import pytest
import torch
from refork.trainers.cfcql.loss import (
    agent_weights,
    counterfactual_divergence,
    counterfactual_gap,
    divergence,
    joint_divergence,
)
from refork.trainers.cql.loss import cql_loss
from refork.trainers.joint_loss import conservative_terms

SWEPT = torch.tensor([[[[1.0, 2.0, 0.0], [1.0, 0.0, 3.0]]]])  # (S, B, n, A); logged: the first of both, worth 1
LOGGED = torch.tensor([[1.0]])


def test_the_gap_weighs_each_decision_makers_log_sum() -> None:
    found = counterfactual_gap(SWEPT, LOGGED, torch.tensor([[[0.25, 0.75]]]))
    first, second = math.log(math.e + math.e**2 + 1), math.log(math.e + 1 + math.e**3)
    assert found.item() == pytest.approx(0.25 * first + 0.75 * second - 1, abs=1e-6)


def test_actions_that_are_not_allowed_are_left_out() -> None:
    allowed = torch.tensor([[[[True, False, True], [True, True, False]]]])
    found = counterfactual_gap(SWEPT, LOGGED, torch.tensor([[[0.5, 0.5]]]), allowed)
    assert found.item() == pytest.approx(math.log(math.e + 1) - 1, abs=1e-6)


def test_with_one_decision_maker_it_is_conservative_q_learning() -> None:
    """Values and gradients."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((2, 6, 4), generator=generator)
    targets = torch.randn((2, 6), generator=generator)
    allowed = torch.rand((2, 6, 4), generator=generator) < 0.7
    actions = allowed.float().argmax(-1)
    allowed |= torch.nn.functional.one_hot(actions, 4).bool()
    ours, theirs = values.clone().requires_grad_(), values.clone().requires_grad_()
    behaviour = torch.randn((2, 6, 1, 4), generator=generator)
    logged = ours.gather(-1, actions[..., None]).squeeze(-1)
    swept, legal = ours[:, :, None], allowed[:, :, None]
    weights = agent_weights(divergence(swept, behaviour, legal), temperature=3.0)
    found = conservative_terms(logged, targets, counterfactual_gap(swept, logged, weights, legal), alpha=0.7)
    wanted = cql_loss(theirs, actions, targets, allowed, 0.7)
    torch.testing.assert_close(found.total, wanted.total)
    torch.testing.assert_close(found.td, wanted.td)
    torch.testing.assert_close(found.conservative, wanted.conservative)
    found.total.sum().backward()
    wanted.total.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)  # type: ignore[arg-type]


def test_the_divergence_is_that_of_the_softmax_of_values() -> None:
    swept = torch.log(torch.tensor([[[[0.5, 0.25, 0.25]]]])) + 7.0
    behaviour = torch.log(torch.tensor([[[[0.25, 0.25, 0.5]]]])) - 2.0
    found = divergence(swept, behaviour)
    assert found.item() == pytest.approx(0.5 * math.log(2) - 0.25 * math.log(2), abs=1e-6)
    allowed = torch.tensor([[[[True, True, False]]]])
    wanted = 2 / 3 * math.log(2 / 3 / 0.5) + 1 / 3 * math.log(1 / 3 / 0.5)
    assert divergence(swept, behaviour, allowed).item() == pytest.approx(wanted, abs=1e-6)


def test_weights_are_uniform_at_zero_and_pick_the_furthest_at_large() -> None:
    kl = torch.tensor([[[0.1, 0.9, 0.4]]])
    assert agent_weights(kl, 0.0)[0, 0].tolist() == pytest.approx([1 / 3] * 3)
    assert agent_weights(kl, 1e4)[0, 0].tolist() == pytest.approx([0.0, 1.0, 0.0])
    some = agent_weights(kl, 2.0)[0, 0]
    odds = [math.exp(2 * x) for x in (0.1, 0.9, 0.4)]
    assert some.tolist() == pytest.approx([x / sum(odds) for x in odds])


def test_no_gradient_passes_through_the_weights() -> None:
    swept = SWEPT.clone().requires_grad_()
    weights = agent_weights(divergence(swept, torch.zeros_like(swept)), 1.0)
    assert not weights.requires_grad


def test_the_gradient_is_the_softmax_less_the_logged_action() -> None:
    swept = SWEPT.double().requires_grad_()
    weights = torch.tensor([[[0.25, 0.75]]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q: counterfactual_gap(q, LOGGED.double(), weights), (swept,))
    counterfactual_gap(swept, LOGGED.double(), weights).sum().backward()
    assert torch.allclose(swept.grad, weights[..., None] * torch.softmax(SWEPT.double(), -1))  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_the_joint_divergence_grows_exponentially_where_ours_does_not(n: int) -> None:
    policy = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(n, 4)
    behaviour = torch.full((n, 4), 0.25)  # sum pi^2 / beta = 4
    assert counterfactual_divergence(policy, behaviour).item() == pytest.approx(3.0)
    assert joint_divergence(policy, behaviour).item() == pytest.approx(4.0**n - 1)


def test_divergences_of_the_behaviour_itself_are_zero_and_out_of_support_infinite() -> None:
    behaviour = torch.tensor([[0.3, 0.7, 0.0], [0.5, 0.5, 0.0]])
    assert counterfactual_divergence(behaviour, behaviour).item() == pytest.approx(0.0, abs=1e-6)
    assert joint_divergence(behaviour, behaviour).item() == pytest.approx(0.0, abs=1e-6)
    outside = torch.tensor([[0.3, 0.7, 0.0], [0.0, 0.0, 1.0]])
    assert counterfactual_divergence(outside, behaviour).item() == math.inf
