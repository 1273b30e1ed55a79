"""The learners of one run, as a trainer sees them: each computes its share of every gradient, a sum makes them one.

Every rank holds the same weights, the same experience and the same random streams; only the work is split. So any
number of them makes the updates that one makes, up to the order of additions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Ranks(Protocol):
    """Of one run."""

    @property
    def rank(self) -> int:
        """This one's number, from 0."""

    @property
    def size(self) -> int:
        """How many there are."""

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Add up float tensors over all ranks, in place; all ranks get the same numbers. All must call it alike."""


@dataclass(frozen=True)
class Alone:
    """The only one."""

    rank: int = 0
    size: int = 1

    def add(self, tensors: Sequence[Tensor]) -> None:
        """They are the sums already."""


def own_rows(ranks: Ranks, count: int) -> Tensor:
    """(k,) int64: which of `count` rows are this rank's; every row is exactly one's."""
    return torch.arange(ranks.rank, count, ranks.size)
