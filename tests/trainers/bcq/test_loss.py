"""Batch-constrained Q-learning against values worked out by hand."""

import pytest
import torch
from refork.trainers.bcq.loss import bcq_loss, in_support

LOGITS = torch.log(torch.tensor([[[0.6, 0.3, 0.1]]]))


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [
        (0.0, [True, True, True]),
        (0.2, [True, True, False]),
        (0.49, [True, True, False]),
        (0.51, [True, False, False]),
        (1.0, [True, False, False]),
    ],
)
def test_actions_are_kept_by_their_share_of_the_likeliest(threshold: float, kept: list[bool]) -> None:
    assert in_support(LOGITS, None, threshold)[0, 0].tolist() == kept


def test_the_likeliest_is_taken_among_the_allowed() -> None:
    allowed = torch.tensor([[[False, True, True]]])
    assert in_support(LOGITS, allowed, 0.3)[0, 0].tolist() == [False, True, True]
    assert in_support(LOGITS, allowed, 0.0)[0, 0].tolist() == [False, True, True]


def test_small_errors_count_by_their_square_large_ones_linearly() -> None:
    q = torch.tensor([[[1.0, 5.0], [2.0, 0.0]]])
    terms = bcq_loss(q, torch.tensor([[0, 1]]), torch.tensor([[1.5, 3.0]]))
    assert terms.total.item() == pytest.approx((0.5 * 0.25 + 3 - 0.5) / 2)


def test_gradients_against_finite_differences() -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 3, 4).double().requires_grad_()
    actions, targets = torch.randint(4, (2, 3)), 3 * torch.randn(2, 3).double()
    assert torch.autograd.gradcheck(lambda x: bcq_loss(x, actions, targets).total, (q,))
