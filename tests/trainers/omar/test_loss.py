"""OMAR's search and mixed loss against values worked out by hand."""

import math

import pytest
import torch
from refork.trainers.omar.loss import rectified, rectified_softmax, refit, search


def test_the_refit_weighs_elites_by_the_softmax_of_their_values() -> None:
    actions = torch.tensor([[0.0], [0.5], [1.0]])
    mean, std = refit(actions, torch.tensor([-9.0, math.log(1.0), math.log(3.0)]), elites=2)
    assert mean.item() == pytest.approx(0.25 * 0.5 + 0.75 * 1.0)
    assert std.item() == pytest.approx(math.sqrt((0.375**2 + 0.125**2) / 2))


def test_the_search_finds_the_best_action_and_never_one_worse_than_the_policys() -> None:
    noise = torch.randn((4, 2, 1, 40, 1), generator=torch.Generator().manual_seed(0))  # rounds, K, B, N, d
    goals = torch.tensor([[[0.7]], [[-0.2]]])

    def value(actions: torch.Tensor) -> torch.Tensor:
        return -10 * (actions - goals[:, :, None]).square().sum(-1)

    found = search(value, torch.zeros(2, 1, 1), noise, elites=5)
    assert found.flatten().tolist() == pytest.approx([0.7, -0.2], abs=0.03)
    assert torch.equal(search(value, goals, noise, elites=5), goals)


def test_the_search_stays_within_bounds() -> None:
    noise = 5 * torch.randn((2, 1, 1, 20, 2), generator=torch.Generator().manual_seed(0))
    found = search(lambda actions: actions.sum(-1), torch.zeros(1, 1, 2), noise, elites=5)
    assert found.tolist() == [[[1.0, 1.0]]]


def test_gradient_and_distance_are_mixed() -> None:
    found = rectified(torch.tensor([2.0]), torch.tensor([10.0]), 0.75)
    assert found.total.item() == 0.25 * 2 + 0.75 * 10


def test_softmax_actors_are_drawn_to_the_best_allowed_action() -> None:
    logits = torch.log(torch.tensor([[[0.5, 0.25, 0.25]]]))
    values = torch.tensor([[[1.0, 2.0, 9.0]]])
    allowed = torch.tensor([[[True, True, False]]])
    found = rectified_softmax(logits, values, allowed, entropy=0.1, coefficient=0.5)
    entropy = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert found.gradient.item() == pytest.approx(-(2 / 3 * 1 + 1 / 3 * 2) - 0.1 * entropy)
    assert found.distance.item() == pytest.approx(math.log(3))
    assert found.total.item() == pytest.approx(0.5 * found.gradient.item() + 0.5 * found.distance.item())


def test_the_actors_gradient_is_that_of_finite_differences() -> None:
    values = torch.tensor([[[1.0, 2.0, 9.0]]], dtype=torch.float64)
    allowed = torch.tensor([[[True, True, False]]])
    logits = torch.tensor([[[0.3, -0.2, 0.1]]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rectified_softmax(x, values, allowed, 0.1, 0.6).total, (logits,))
