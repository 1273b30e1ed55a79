"""The losses of CQL on continuous actions: by hand, by finite differences, and against a known integral."""

import math

import pytest
import torch
from refork.trainers.cql.loss import continuous_loss, multiplier_loss, policy_loss, soft_target


def test_the_loss_by_hand() -> None:
    logged = torch.tensor([[[1.0], [2.0]]])  # (K, 2, B)
    sampled = torch.tensor([[[[0.0, 1.0]], [[3.0, 3.0]]]])  # (K, 2, B, N)
    densities = torch.tensor([[[0.5, -0.5]]])
    terms = continuous_loss(logged, torch.tensor([[1.5]]), sampled, densities, alpha=2.0)
    first = math.log((math.exp(-0.5) + math.exp(1.5)) / 2) - 1.0
    second = math.log((math.exp(2.5) + math.exp(3.5)) / 2) - 2.0
    assert terms.td.item() == pytest.approx(0.25 + 0.25)
    assert terms.conservative.item() == pytest.approx((first + second) / 2, abs=1e-6)
    assert terms.total.item() == pytest.approx(0.5 + 2 * (first + second), abs=1e-6)


def test_a_constant_value_integrates_to_the_volume_whatever_the_samples_densities_cover() -> None:
    """log of the integral of exp(c) over [-1, 1]^3 is c + 3 log 2; a proposal on half of it misses half."""
    sampled = torch.full((1, 2, 1, 8), 0.7)
    everywhere = torch.full((1, 1, 8), -3 * math.log(2))
    zero = torch.zeros(1, 2, 1)
    found = continuous_loss(zero, torch.zeros(1, 1), sampled, everywhere, 1.0).conservative
    assert found.item() == pytest.approx(0.7 + 3 * math.log(2), abs=1e-6)
    half = continuous_loss(zero, torch.zeros(1, 1), sampled, everywhere + math.log(2), 1.0).conservative
    assert half.item() == pytest.approx(0.7 + 2 * math.log(2), abs=1e-6)


def test_the_estimate_of_the_integral_comes_to_the_integral() -> None:
    """Q(a) = 2 a on [-1, 1]: the integral of exp is sinh(2)."""
    torch.manual_seed(0)
    actions = torch.rand(200_000) * 2 - 1
    densities = torch.full((1, 1, len(actions)), -math.log(2))
    found = continuous_loss(
        torch.zeros(1, 2, 1), torch.zeros(1, 1), (2 * actions).expand(1, 2, 1, -1), densities, 1.0
    ).conservative
    assert found.item() == pytest.approx(math.log(math.sinh(2)), abs=0.01)


def test_gradients_against_finite_differences() -> None:
    torch.manual_seed(0)
    logged, sampled = torch.randn(2, 2, 3).double(), torch.randn(2, 2, 3, 4).double()
    targets, densities = torch.randn(2, 3).double(), torch.randn(2, 3, 4).double()
    inputs = (logged.requires_grad_(), sampled.requires_grad_())
    assert torch.autograd.gradcheck(lambda q, s: continuous_loss(q, targets, s, densities, 0.7).total, inputs)
    weight = torch.rand(2).double()
    assert torch.autograd.gradcheck(lambda q, d: policy_loss(q, d, weight).total, (logged, targets.requires_grad_()))


def test_the_target_takes_the_lower_twin_and_counts_the_entropy() -> None:
    values = torch.tensor([[[4.0], [3.0]]])
    one = torch.tensor([[1.0]])
    found = soft_target(one, one / 2, values, torch.tensor([[-2.0]]), torch.tensor([[0.5]]))
    assert found.item() == 1 + 0.5 * (3 + 0.5 * 2)
    assert soft_target(one, one / 2, values, torch.tensor([[-2.0]]), 0.0).item() == 2.5


def test_the_policy_loss_by_hand() -> None:
    terms = policy_loss(torch.tensor([[[1.0, 5.0], [2.0, 4.0]]]), torch.tensor([[0.5, 1.5]]), torch.tensor([0.2]))
    assert terms.entropy.item() == -1.0
    assert terms.total.item() == pytest.approx(-(1 + 4) / 2 + 0.2)


@pytest.mark.parametrize(("excess", "sign"), [(0.5, -1), (-0.5, 1)])
def test_a_multiplier_rises_while_its_constraint_is_broken(excess: float, sign: int) -> None:
    logarithm = torch.zeros(1, requires_grad=True)
    terms = multiplier_loss(logarithm.exp(), torch.tensor([excess]))
    terms.total.sum().backward()
    assert logarithm.grad is not None
    assert logarithm.grad.item() == pytest.approx(sign * 0.5)  # descent steps against it
