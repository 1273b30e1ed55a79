"""A positive weight that is learnt: the temperature of an entropy, the multiplier of a constraint."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Multiplier(nn.Module):
    """K weights exp(logarithm), all beginning at `start` > 0. forward() -> (K,)."""

    def __init__(self, members: int, start: float) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.full((members,), math.log(start)))

    def forward(self) -> Tensor:
        return self.logarithm.exp()
