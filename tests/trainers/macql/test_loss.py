"""The joint log-sum of MACQL against values worked out by hand, and its estimates against the exact one."""

import math

import pytest
import torch
from refork.trainers.candidates import policy_candidates, together, uniform_candidates, weigh
from refork.trainers.macql.loss import all_joint, joint_gap, policy_joint, uniform_joint


def test_the_gap_is_over_joint_actions() -> None:
    values = torch.tensor([[[1.0, 2.0, 0.0, 3.0]]])
    found = joint_gap(values, torch.tensor([[2.0]]))
    assert found.item() == pytest.approx(math.log(math.e + math.e**2 + 1 + math.e**3) - 2, abs=1e-6)


def test_joint_actions_that_cannot_be_taken_do_not_count() -> None:
    """Counted as value 0 they would add exp(0) each and raise the sum."""
    values = torch.tensor([[[-4.0, 7.0, -3.0]]])
    available = torch.tensor([[[True, False, True]]])
    found = joint_gap(values, torch.tensor([[-3.0]]), available)
    assert found.item() == pytest.approx(math.log(math.exp(-4) + math.exp(-3)) + 3, abs=1e-6)


def test_all_joint_actions_are_listed_once() -> None:
    assert all_joint(2, 3).tolist() == [[a, b] for a in range(3) for b in range(3)]
    assert all_joint(1, 3).tolist() == [[0], [1], [2]]


ALLOWED = torch.tensor([[[[True, False, True, True], [False, True, True, False]]]])  # (S, B, n, A)


def _value(actions: torch.Tensor) -> torch.Tensor:
    return 0.3 * actions[..., 0] + 0.5 * actions[..., 1] - 0.2 * actions[..., 0] * actions[..., 1]


def _exact() -> float:
    return math.log(sum(float(_value(torch.tensor([a, b]).double()).exp()) for a in (0, 2, 3) for b in (1, 2)))


def test_uniform_samples_are_allowed_and_estimate_the_exact_sum() -> None:
    uniform = torch.rand((1, 1, 20000, 2), generator=torch.Generator().manual_seed(0))
    actions, log_probability = uniform_joint(uniform, ALLOWED)
    assert set(actions[0, 0, :, 0].tolist()) == {0, 2, 3}
    assert set(actions[0, 0, :, 1].tolist()) == {1, 2}
    assert log_probability.unique().tolist() == pytest.approx([-math.log(6)])
    estimate = torch.logsumexp(weigh(_value(actions), log_probability), -1)
    assert estimate.item() == pytest.approx(_exact(), abs=0.01)


def test_policy_samples_have_their_own_probability_and_estimate_the_same() -> None:
    logits = torch.tensor([[[[0.5, 9.0, -0.5, 1.0], [3.0, 0.0, 1.0, -1.0]]]]).masked_fill(~ALLOWED, -torch.inf)
    uniform = torch.rand((1, 1, 20000, 2), generator=torch.Generator().manual_seed(1))
    actions, log_probability = policy_joint(uniform, logits)
    shares = torch.softmax(logits[0, 0], -1)
    wanted = (shares[0][actions[0, 0, :, 0]] * shares[1][actions[0, 0, :, 1]]).log()
    assert torch.allclose(log_probability[0, 0], wanted, atol=1e-5)
    often = torch.bincount(actions[0, 0, :, 0], minlength=4) / 20000
    assert often.tolist() == pytest.approx(shares[0].tolist(), abs=0.015)
    estimate = torch.logsumexp(weigh(_value(actions), log_probability), -1)
    assert estimate.item() == pytest.approx(_exact(), abs=0.02)


def test_candidates_of_continuous_actions_estimate_the_integral() -> None:
    """Each of the three kinds by itself too: the densities are their own."""
    generator = torch.Generator().manual_seed(2)
    count = 20000
    uniform = torch.rand((count, 1), generator=generator)
    noise = torch.randn((2, count, 1), generator=generator)
    log_std = torch.tensor([math.log(1.2)])
    drawn = [policy_candidates(torch.tensor([mean]), log_std, noise[i]) for i, mean in enumerate((0.4, -0.3))]
    found = together([uniform_candidates(uniform), *drawn])
    assert found.actions.shape == (3 * count, 1)
    exact = math.log((math.exp(1.5) - math.exp(-1.5)) / 1.5)  # of the integral of exp(1.5 a) over [-1, 1]
    for part in range(3):
        mine = slice(part * count, (part + 1) * count)
        summands = weigh(1.5 * found.actions[mine, 0], found.log_density[mine])
        assert torch.logsumexp(summands, -1).item() == pytest.approx(exact, abs=0.03)
    assert torch.logsumexp(weigh(1.5 * found.actions[:, 0], found.log_density), -1).item() == pytest.approx(
        exact, abs=0.02
    )
