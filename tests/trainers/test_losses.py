"""Losses of the algorithms on a batch of three decisions, by hand."""

import math

import pytest
import torch
from refork.trainers.batch import Batch
from refork.trainers.crr.loss import crr_loss
from refork.trainers.grpo.loss import grpo_loss
from refork.trainers.surrogate import Clip, Penalty

CLIP = Clip(0.2, 0.28, 3.0)
NEW = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.6, 0.4]]).log()
REFERENCE = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]).log()
BATCH = Batch(
    features=torch.zeros(3, 2, 1),
    mask=torch.ones(3, 2, dtype=torch.bool),
    actions=torch.tensor([0, 1, 0]),
    log_probs=torch.tensor([0.5, 0.5, 0.4]).log(),  # ratios 1, 1.5, 1.5
    advantages=torch.tensor([2.0, 1.0, -1.0]),
    rollouts=torch.tensor([4, 4, 9]),
    branch=torch.tensor([False, False, True]),
    target=torch.tensor([False, False, True]),
)
LOSSES = [-2.0, -1.28, 1.5]
ENTROPY = (math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75) - 0.6 * math.log(0.6) - 0.4 * math.log(0.4)) / 3
KL = (0 + (0.5 / 0.75 - math.log(0.5 / 0.75) - 1) + (0.5 / 0.6 - math.log(0.5 / 0.6) - 1)) / 3
OLD_KL = (0 + 2 * (1.5 - math.log(1.5) - 1)) / 3  # samples are from the old policy


def test_crr_is_the_mean_over_decisions_split_by_where_they_were_made() -> None:
    terms = crr_loss(BATCH, NEW, REFERENCE, CLIP, Penalty(kl=0.1, entropy=0.01))
    assert terms.policy_main.item() == pytest.approx((LOSSES[0] + LOSSES[1]) / 3, abs=1e-6)
    assert terms.policy_branch.item() == pytest.approx(LOSSES[2] / 3, abs=1e-6)
    assert terms.kl.item() == pytest.approx(KL, abs=1e-6)
    assert terms.entropy.item() == pytest.approx(ENTROPY, abs=1e-6)
    assert terms.clip_share.item() == pytest.approx(1 / 3)
    assert terms.old_kl.item() == pytest.approx(OLD_KL, abs=1e-6)
    assert terms.total.item() == pytest.approx(sum(LOSSES) / 3 + 0.1 * KL - 0.01 * ENTROPY, abs=1e-6)


def test_what_is_to_be_imitated_adds_its_cross_entropy() -> None:
    plain, distilled = (crr_loss(BATCH, NEW, None, CLIP, Penalty(), distil) for distil in (0.0, 0.5))
    assert plain.distil.item() == distilled.distil.item() == pytest.approx(-math.log(0.6) / 3, abs=1e-6)
    assert plain.total.item() == pytest.approx(sum(LOSSES) / 3, abs=1e-6)
    assert distilled.total.item() == pytest.approx(plain.total.item() - 0.5 * math.log(0.6) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("decisions", sum(LOSSES) / 3), ("rollouts", ((LOSSES[0] + LOSSES[1]) / 2 + LOSSES[2]) / 2)],
)
def test_grpo_over_decisions_or_over_rollouts(aggregate: str, expected: float) -> None:
    terms = grpo_loss(BATCH, NEW, None, aggregate, CLIP, Penalty(entropy=0.01))  # type: ignore[arg-type]
    assert terms.policy.item() == pytest.approx(expected, abs=1e-6)
    assert terms.kl.item() == 0.0
    assert terms.total.item() == pytest.approx(expected - 0.01 * ENTROPY, abs=1e-6)
