"""Many small networks of one shape as one: every weight has a leading axis, every layer is one batched product.

Member k of a stack is what a network made alone from the k-th generator would be, so several seeds, the twins of a
critic, or the members of an ensemble cost one pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


class StackedMLP(nn.Module):
    """K multilayer perceptrons with ReLU between layers. Input (K, B, sizes[0]) -> (K, B, sizes[-1])."""

    def __init__(self, sizes: Sequence[int], generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        made = [[_uniform(g, i, (i, o), (o,)) for i, o in pairwise(sizes)] for g in generators]
        depth = range(len(sizes) - 1)
        self.weights = nn.ParameterList(nn.Parameter(torch.stack([layers[d][0] for layers in made])) for d in depth)
        self.biases = nn.ParameterList(nn.Parameter(torch.stack([layers[d][1] for layers in made])) for d in depth)

    def forward(self, x: Tensor) -> Tensor:
        """(K, B, in) -> (K, B, out)."""
        last = len(self.weights) - 1
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias[:, None], x, weight)
            x = x.relu_() if depth < last else x
        return x


class StackedTable(nn.Module):
    """K look-up tables: the first layer of a network on states, a one-hot product without the product."""

    def __init__(self, size: int, width: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        made = [torch.randn((size, width), generator=g) / math.sqrt(width) for g in generators]
        self.rows = nn.Parameter(torch.stack(made))

    def forward(self, states: Tensor) -> Tensor:
        """(K, B) int64 -> (K, B, width)."""
        return functional.embedding(self._flat(states), self.rows.flatten(0, 1))

    def back(self, states: Tensor, gradient: Tensor, into: Tensor) -> None:
        """Write the gradient of the rows, from that of the answers (K, B, width)."""
        count = self.rows.shape[0] * self.rows.shape[1]
        found = torch.ops.aten.embedding_dense_backward(gradient, self._flat(states), count, -1, False)
        into.copy_(found.view(self.rows.shape))

    def _flat(self, states: Tensor) -> Tensor:
        """(K, B) -> numbers of rows in all tables, one after the other."""
        members, size, _ = self.rows.shape
        return states + torch.arange(0, members * size, size)[:, None]


def _uniform(generator: torch.Generator, fan_in: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """As `nn.Linear` begins: uniform within 1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)
    return [torch.rand(shape, generator=generator) * (2 * bound) - bound for shape in shapes]
