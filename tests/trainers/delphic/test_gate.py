"""The gate: likelihood near the best, action marginal near the logged one."""

import math

import pytest
import torch
from refork.trainers.delphic.gate import Fit, compatible, episode_log_likelihood, excess_variation


def test_a_world_must_explain_the_log_nearly_as_well_as_the_best() -> None:
    fit = Fit(torch.tensor([[-2.0, -2.04, -2.06]]), torch.zeros(1, 3))
    assert compatible(fit, 0.05, 0.15).tolist() == [[True, True, False]]


def test_a_world_must_act_as_the_log_does() -> None:
    fit = Fit(torch.full((1, 3), -2.0), torch.tensor([[0.0, 0.15, 0.16]]))
    assert compatible(fit, 0.05, 0.15).tolist() == [[True, True, False]]


def test_a_likelihood_with_the_wrong_marginal_sets_no_standard() -> None:
    fit = Fit(torch.tensor([[-1.0, -2.0]]), torch.tensor([[0.5, 0.0]]))
    assert compatible(fit, 0.05, 0.15).tolist() == [[False, True]]


def test_no_world_may_be_left() -> None:
    assert not compatible(Fit(torch.zeros(1, 2), torch.ones(1, 2)), 0.05, 0.15).any()


def test_the_evidence_of_an_episode_is_a_mixture() -> None:
    """Two nodes of weights .25 and .75; the first episode has two steps."""
    steps = torch.log(torch.tensor([[[0.5, 0.5, 0.2], [0.1, 0.3, 0.4]]]))
    prior = torch.log(torch.tensor([[0.25, 0.75]]))
    joint = episode_log_likelihood(steps, prior, torch.tensor([0, 0, 1]), 2)
    first = 0.25 * 0.25 + 0.75 * 0.03
    assert torch.logsumexp(joint, 1)[0].tolist() == pytest.approx([math.log(first), math.log(0.25 * 0.2 + 0.3)])
    assert torch.softmax(joint, 1)[0, 0, 0].item() == pytest.approx(0.0625 / first)


def test_total_variation_beyond_sampling_noise() -> None:
    logged = torch.tensor([0] * 600 + [1] * 400)
    noise = math.sqrt(2 / math.pi * 0.24 / 1000)
    found = excess_variation(torch.tensor([[0.6, 0.4], [0.9, 0.1]]), logged)
    assert found.tolist() == pytest.approx([0.0, 0.3 - noise], abs=1e-6)
