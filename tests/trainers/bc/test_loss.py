"""The losses of behaviour cloning against values worked out by hand."""

import math

import pytest
import torch
from refork.trainers.bc.loss import discrete_loss, gaussian_loss, mean_loss


def test_the_negative_log_likelihood_of_the_logged_action() -> None:
    logits = torch.tensor([[[1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]])
    terms = discrete_loss(logits, torch.tensor([[0, 2]]), None, shrink=0.5)
    first = math.log(math.e + math.e**2 + 1) - 1.0
    assert terms.imitation.tolist() == pytest.approx([(first + math.log(3)) / 2])
    assert terms.total.tolist() == pytest.approx([(first + math.log(3)) / 2 + 0.5 * 5 / 6])


def test_actions_that_are_not_allowed_take_no_probability() -> None:
    allowed = torch.tensor([[[True, False, True]]])
    terms = discrete_loss(torch.tensor([[[1.0, 9.0, 0.0]]]), torch.tensor([[0]]), allowed, shrink=0.0)
    assert terms.total.item() == pytest.approx(math.log(math.e + 1) - 1)


def test_the_squared_error_of_a_mean_is_summed_over_dimensions() -> None:
    outputs = torch.tensor([[[math.atanh(0.5), 0.0]]])
    terms = mean_loss(outputs, torch.tensor([[[0.0, -0.2]]]), shrink=0.0)
    assert terms.total.item() == pytest.approx(0.25 + 0.04)


def test_the_density_of_a_squashed_gaussian() -> None:
    mean, log_std = torch.zeros(1, 1, 1), torch.zeros(1, 1, 1)
    terms = gaussian_loss(mean, log_std, torch.tensor([[[0.5]]]), shrink=0.0)
    normal = -0.5 * math.atanh(0.5) ** 2 - 0.5 * math.log(2 * math.pi)
    assert terms.imitation.item() == pytest.approx(-(normal - math.log(1 - 0.25)), rel=1e-5)
