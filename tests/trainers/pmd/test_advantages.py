"""Advantages of games by hand, on a table small enough to know every value."""

import numpy as np
import pytest
import torch
from refork.trainers.pmd.advantages import RunningScale, counterfactual_baseline, gae


def test_gae_by_hand_stops_at_the_end_of_the_game() -> None:
    rewards, values = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0.5], [1.0], [3.0]])
    advantages, targets = gae(rewards, values, 0.5)
    assert advantages[:, 0].tolist() == pytest.approx([1.5 + 0.5 * (4.0 + 0.5 * 1.0), 4.0 + 0.5 * 1.0, 1.0])
    assert targets.tolist() == (advantages + values).tolist()


def test_lambda_1_is_the_return_and_lambda_0_the_next_value() -> None:
    rng = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(5, 3, 2, generator=rng), torch.randn(5, 3, 2, generator=rng)
    returns = rewards.flip(0).cumsum(0).flip(0)
    assert gae(rewards, values, 1.0)[1].numpy() == pytest.approx(returns.numpy(), abs=1e-5)
    ahead = torch.cat([values[1:], torch.zeros(1, 3, 2)])
    assert gae(rewards, values, 0.0)[1].numpy() == pytest.approx((rewards + ahead).numpy(), abs=1e-6)


def test_the_counterfactual_baseline_on_a_table() -> None:
    """Q_i(a_i, a_-i) of a one-shot game; the partner chose 1. Move 2 is illegal, its Q must not matter."""
    q = torch.tensor([[4.0, 8.0, 1e9]])
    log_probs = torch.tensor([[0.75, 0.25, 0.0]]).log()
    assert float(counterfactual_baseline(q, log_probs)) == pytest.approx(0.75 * 4.0 + 0.25 * 8.0)


def test_with_the_counterfactual_baseline_advantages_are_0_in_the_mean_and_the_gradient_is_the_true_one() -> None:
    """Whatever the partner plays: sum_a pi(a) A(a, b) = 0, and the expected gradient is that of the payoff."""
    rng = np.random.default_rng(0)
    payoff, logits = torch.tensor(rng.standard_normal((3, 2))), torch.tensor(rng.standard_normal(3), requires_grad=True)
    other = torch.tensor([0.3, 0.7], dtype=torch.float64)
    log_pi = logits.log_softmax(0)
    true = torch.autograd.grad(log_pi.exp() @ payoff @ other, logits, retain_graph=True)[0]
    estimate = torch.zeros(3, dtype=torch.float64)
    for b in range(2):
        advantage = payoff[:, b] - counterfactual_baseline(payoff[None, :, b], log_pi.detach()[None])
        assert float(log_pi.detach().exp() @ advantage) == pytest.approx(0.0, abs=1e-12)
        weights = other[b] * log_pi.detach().exp() * advantage
        estimate += torch.autograd.grad(log_pi @ weights, logits, retain_graph=True)[0]
    assert estimate.numpy() == pytest.approx(true.numpy(), abs=1e-12)


def test_the_scale_begins_with_the_first_targets_and_follows() -> None:
    scale = RunningScale(0.5)
    values = torch.tensor([[1.0, 10.0], [3.0, 10.0]])
    assert scale.restore(values).equal(values)
    scale.update(values)
    assert scale.normalise(values)[:, 0].tolist() == pytest.approx([-1.0, 1.0])
    assert scale.normalise(values)[:, 1].tolist() == [0.0, 0.0]
    assert scale.restore(scale.normalise(values)).numpy() == pytest.approx(values.numpy(), abs=1e-5)
    scale.update(values + 4)
    assert float(scale.normalise(torch.tensor([[4.0, 0.0]]))[0, 0]) == pytest.approx(0.0)
    other = RunningScale(0.5)
    other.load_state_dict(scale.state_dict())
    assert other.normalise(values).equal(scale.normalise(values))
