"""The parameters of a module as one vector: clearing, clipping and Adam are one operation each, not one a tensor.

On small networks those operations cost as much as the gradients themselves.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FlatParameters:
    """Owns the memory of a module's parameters and their gradients; the module goes on as before."""

    def __init__(self, module: nn.Module) -> None:
        parameters = list(module.parameters())
        self.vector = nn.Parameter(torch.cat([p.detach().flatten() for p in parameters]))
        """(n,): what the optimiser steps."""
        self.vector.grad = torch.zeros_like(self.vector)
        begin = 0
        for p in parameters:
            end = begin + p.numel()
            p.data = self.vector.data[begin:end].view(p.shape)
            p.grad = self.vector.grad[begin:end].view(p.shape)
            begin = end

    @property
    def gradient(self) -> Tensor:
        """(n,): gradients are added to it."""
        assert self.vector.grad is not None
        return self.vector.grad

    def clip(self, limit: float) -> float:
        """Shorten the gradient to a norm of at most `limit`; its norm before."""
        norm = float(self.gradient.norm())
        if norm > limit:
            self.gradient.mul_(limit / norm)
        return norm
