"""Delphic and epistemic variance on given numbers."""

import numpy as np
import pytest
import torch
from refork.trainers.delphic.loss import penalised_target
from refork.trainers.delphic.uncertainty import adjustment_weights, disagreement

ALL = torch.tensor([[True, True]])


def test_between_and_epistemic_by_hand() -> None:
    """Worlds of means 1 and 4; bootstraps +-.5 in the first, none apart in the second."""
    found = disagreement(torch.tensor([[[0.5, 1.5], [4.0, 4.0]]]), ALL)
    assert found.between.item() == pytest.approx(((1 - 2.5) ** 2 + (4 - 2.5) ** 2) / 2)
    assert found.epistemic.item() == pytest.approx((0.25 + 0.0) / 2)


def test_the_two_add_up_to_the_total_variance() -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 5, 3, 7, 4)))
    found = disagreement(values, torch.ones(2, 5, dtype=torch.bool))
    total = values.flatten(1, 2).var(1, correction=0)
    assert torch.allclose(found.between + found.epistemic, total)


def test_incompatible_worlds_do_not_count() -> None:
    values = torch.tensor([[[1.0, 1.0], [99.0, -50.0], [3.0, 3.0]]])
    found = disagreement(values, torch.tensor([[True, False, True]]))
    assert found.between.item() == found.delphic.item() == 1.0
    assert found.epistemic.item() == 0.0


def test_one_compatible_world_cannot_disagree() -> None:
    found = disagreement(torch.tensor([[[1.0, 2.0], [7.0, 9.0]]]), torch.tensor([[True, False]]))
    assert found.between.item() == found.delphic.item() == 0.0
    assert found.epistemic.item() == 0.25


def test_a_shift_that_all_bootstraps_share_is_no_noise() -> None:
    """Episodes drawn twice move every world alike: all of the difference between worlds stays delphic."""
    shared = torch.tensor([-3.0, 0.0, 3.0])
    found = disagreement(torch.stack([shared, shared + 2])[None], ALL)
    assert found.delphic.item() == pytest.approx(1.0)
    assert found.epistemic.item() == pytest.approx(6.0)


def test_noise_of_bootstraps_is_not_taken_for_disagreement() -> None:
    """The estimate is of the population variance of the worlds' true values: 4 here, 0 without differences."""
    rng = np.random.default_rng(0)
    worlds = torch.tensor([-2.0, 2.0])[None, :, None, None]
    noise = torch.from_numpy(rng.normal(size=(1, 2, 3, 40_000)))
    everywhere = disagreement(worlds + noise, ALL)
    # .5 of the variance 1 / 3 of a mean of three is what two worlds show of it
    assert everywhere.between.mean().item() == pytest.approx(4.0 + 0.5 / 3, abs=0.03)
    assert everywhere.delphic.mean().item() == pytest.approx(4.0, abs=0.03)
    assert disagreement(noise, ALL).delphic.mean() < disagreement(noise, ALL).between.mean()


def test_the_target_is_lowered_by_lambda_times_the_uncertainty() -> None:
    one, quarter = torch.tensor([[1.0]]), torch.tensor([[0.25]])
    assert penalised_target(one, quarter, 2.0, "variance").item() == 0.5
    assert penalised_target(one, quarter, 2.0, "deviation").item() == 0.0


def test_adjustment_weighs_by_the_ratio_of_the_action_s_probabilities() -> None:
    """z is yes in half; taken with .2 (no), .8 (yes): on the whole .5. The episode surely has z = no."""
    taken = torch.log(torch.tensor([[[0.2], [0.8]]]))
    half = torch.log(torch.full((1, 2, 1), 0.5))
    no, yes, unsure = (torch.tensor([[[p], [1 - p]]]) for p in (1.0, 0.0, 0.2))
    assert adjustment_weights(no, half, taken, 10.0).item() == pytest.approx(2.5)
    assert adjustment_weights(yes, half, taken, 10.0).item() == pytest.approx(0.625)
    assert adjustment_weights(no, half, taken, 2.0).item() == 2.0
    # of those who took it a fifth has z = no: weighted by the posterior the mean is 1
    assert adjustment_weights(unsure, half, taken, 10.0).item() == pytest.approx(1.0)
