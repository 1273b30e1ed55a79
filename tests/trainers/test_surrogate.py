"""The clipped surrogate and its terms, by hand."""

import math

import pytest
import torch
from refork.trainers.surrogate import Clip, clip_share, clipped_surrogate, entropy, k3, log_ratio

CLIP = Clip(0.2, 0.28, 3.0)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.56, 0.0),  # above 1 + high
        (0.5, 2.0, -1.0, -2.0),  # low ratios of good actions are not clipped
        (0.5, -2.0, 1.6, 0.0),  # below 1 - low
        (1.5, -2.0, 3.0, 2.0),  # high ratios of bad actions are not clipped ...
        (5.0, -2.0, 6.0, 0.0),  # ... up to the dual clip
        (1.2, 0.0, 0.0, 0.0),
    ],
)
def test_loss_and_slope(ratio: float, advantage: float, loss: float, slope: float) -> None:
    log_ratios = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    value = clipped_surrogate(log_ratios, torch.tensor([advantage], dtype=torch.float64), CLIP)
    value.sum().backward()
    assert value.item() == pytest.approx(loss)
    assert log_ratios.grad is not None
    assert log_ratios.grad.item() / ratio == pytest.approx(slope, abs=1e-9)  # d/d ratio


def test_share_of_clipped_decisions() -> None:
    ratios = torch.tensor([1.0, 1.5, 0.5, 0.5, 1.5, 5.0]).log()
    advantages = torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0, -1.0])
    assert clip_share(ratios, advantages, CLIP).item() == pytest.approx(3 / 6)


def test_log_ratios_are_clamped_so_that_nothing_overflows() -> None:
    ratios = log_ratio(torch.tensor([0.0, -500.0]), torch.tensor([-500.0, 0.0]))
    assert ratios.tolist() == [20.0, -20.0]
    assert torch.isfinite(clipped_surrogate(ratios, torch.tensor([-1.0, -1.0]), CLIP)).all()


def test_k3_is_an_estimate_of_the_kl() -> None:
    p, q = torch.tensor([0.2, 0.5, 0.3]), torch.tensor([0.3, 0.3, 0.4])
    estimates = k3(p.log(), q.log())
    assert estimates[0].item() == pytest.approx(0.3 / 0.2 - math.log(0.3 / 0.2) - 1)
    assert (estimates >= 0).all()
    assert (p * estimates).sum().item() == pytest.approx((p * (p / q).log()).sum().item(), abs=1e-6)


def test_entropy_of_masked_rows_is_finite_with_finite_gradient() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf], [5.0, -torch.inf, -torch.inf]], requires_grad=True)
    values = entropy(logits.log_softmax(-1))
    assert values.tolist() == pytest.approx([math.log(2), 0.0], abs=1e-6)
    values.sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
