"""Policy objectives against numbers worked out by hand: two decisions, three moves, the last illegal in the first."""

import dataclasses
from math import log

import pytest
import torch
from refork.trainers.pmd.drift import drift
from refork.trainers.pmd.loss import (
    Decisions,
    Objective,
    divergence,
    imitation,
    policy_loss,
    uniform,
    value_loss,
)
from refork.trainers.surrogate import entropy
from torch import Tensor

MASK = torch.tensor([[True, True, False], [True, True, True]])
OLD = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]]).log()
NEW = torch.tensor([[0.75, 0.25, 0.0], [0.25, 0.5, 0.25]]).log()
SEEN = Decisions(MASK, torch.tensor([0, 2]), OLD, torch.tensor([2.0, 1.0]), uniform(MASK), torch.tensor([-1, 1]))
FORWARD = [0.75 * log(1.5) + 0.25 * log(0.5), 0.5 * log(2) - 0.25 * log(2)]
BACKWARD = [-0.5 * log(1.5) + 0.5 * log(2), -0.25 * log(2) + 0.5 * log(2)]
MAGNET = [0.75 * log(1.5) + 0.25 * log(0.5), log(3) - 1.5 * log(2)]
GAIN = (1.5 * 2.0 + 0.5 * 1.0) / 2
CLIPPED = (1.2 * 2.0 + 0.5 * 1.0) / 2


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(
    ("objective", "total"),
    [
        (Objective(), -GAIN),
        (Objective(clip=0.2), -CLIPPED),
        (Objective(forward=10.0), -GAIN + 10 * _mean(FORWARD)),
        (Objective(backward=3.0), -GAIN + 3 * _mean(BACKWARD)),
        (Objective(forward=10.0, magnet=0.5), -GAIN + 10 * _mean(FORWARD) + 0.5 * _mean(MAGNET)),
        (Objective(entropy=0.1), -GAIN - 0.1 * _mean([log(4) - 0.75 * log(3), 1.5 * log(2)])),
        (Objective(distil=2.0), -GAIN + 2 * log(2)),
    ],
)
def test_totals_by_hand(objective: Objective, total: float) -> None:
    assert float(policy_loss(NEW, SEEN, objective).total) == pytest.approx(total, abs=1e-6)


def test_a_ratio_below_the_clip_with_a_negative_advantage_stays_clipped() -> None:
    seen = dataclasses.replace(SEEN, advantages=torch.tensor([-2.0, -1.0]))
    found = policy_loss(NEW, seen, Objective(clip=0.2)).surrogate
    assert float(found) == pytest.approx((1.5 * 2.0 + 0.8 * 1.0) / 2)


def test_terms_are_unweighted_and_left_out_at_weight_0() -> None:
    terms = policy_loss(NEW, SEEN, Objective(forward=10.0, magnet=0.5, entropy=0.1, distil=2.0))
    assert float(terms.kl) == pytest.approx(_mean(FORWARD), abs=1e-6)
    assert float(terms.kl_magnet) == pytest.approx(_mean(MAGNET), abs=1e-6)
    assert float(terms.distil) == pytest.approx(log(2))
    plain = policy_loss(NEW, SEEN, Objective())
    assert [float(v) for k, v in vars(plain).items() if k not in ("total", "surrogate")] == [0.0] * 4


@pytest.mark.parametrize(
    "objective", [Objective(forward=10.0, magnet=1.0, entropy=0.1), Objective(backward=1.0), Objective(clip=0.2)]
)
def test_the_first_gradient_of_an_iteration_is_the_policy_gradient_and_finite(objective: Objective) -> None:
    logits = OLD.masked_fill(~MASK, 0.0).requires_grad_()
    new = logits.masked_fill(~MASK, -torch.inf).log_softmax(1)
    plain = dataclasses.replace(objective, magnet=0.0, entropy=0.0)
    policy_loss(new, SEEN, plain).total.backward()
    probabilities = OLD.exp()
    hot = torch.nn.functional.one_hot(SEEN.actions, 3)
    expected = -(SEEN.advantages[:, None] * (hot - probabilities)) / 2
    assert logits.grad is not None
    assert logits.grad.numpy() == pytest.approx(expected.numpy(), abs=1e-6)
    logits.grad = None
    policy_loss(logits.masked_fill(~MASK, -torch.inf).log_softmax(1), SEEN, objective).total.backward()
    assert torch.isfinite(logits.grad).all()
    assert float(logits.grad[0, 2]) == 0.0


def test_kl_is_finite_on_the_stored_mask_whatever_stands_at_illegal_moves() -> None:
    assert divergence(NEW, OLD, MASK).tolist() == pytest.approx(FORWARD, abs=1e-6)
    assert divergence(OLD, NEW, MASK).tolist() == pytest.approx(BACKWARD, abs=1e-6)
    single = torch.tensor([[True, False]])
    assert float(divergence(uniform(single), uniform(single), single)) == 0.0
    assert float(entropy(uniform(single))) == 0.0


def test_a_teacher_with_nothing_to_say_adds_nothing_and_an_illegal_one_is_an_error() -> None:
    assert float(imitation(NEW, torch.tensor([-1, -1]))) == 0.0
    with pytest.raises(ValueError, match="teacher's move is illegal by the stored mask"):
        imitation(NEW, torch.tensor([2, 0]))


def test_half_the_mean_squared_error() -> None:
    assert float(value_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))) == pytest.approx(1.25)


def test_drift_by_hand_over_parts() -> None:
    def parts(x: Tensor) -> list[Tensor]:
        return [x[:1], x[1:]]

    found = drift(parts(NEW), parts(OLD), parts(MASK), parts(SEEN.actions))
    assert found.kl == pytest.approx(_mean(FORWARD), abs=1e-6)
    assert found.kl_reverse == pytest.approx(_mean(BACKWARD), abs=1e-6)
    assert found.tv == pytest.approx(0.25, abs=1e-6)
    assert found.max_log_ratio == pytest.approx(log(2), abs=1e-6)
    assert found.entropy == pytest.approx(_mean([log(4) - 0.75 * log(3), 1.5 * log(2)]), abs=1e-6)
