"""One pass of a head whose gradients are written straight to where the optimiser reads them.

The same numbers as the automatic derivative gives. On small networks that costs as much again as the arithmetic: a step
for every operation, and fresh memory for every gradient. Here the loss alone is derived automatically, down to the
head's answers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from refork.agents.q_networks import Head
from torch import Tensor, nn

Gradients = Mapping[nn.Parameter, Tensor]
"""Where the gradient of each parameter is written."""


class HeadPass:
    """A head's answers to some observations, and to others behind them without gradient.

    `answers` (K, graded, out) is a leaf: derive a loss to it, and hand its gradient to `back`, once.
    """

    @torch.no_grad()
    def __init__(self, head: Head, observations: Tensor, graded: int | None = None) -> None:
        """Observations (K, B, ...), the first `graded` of which are learnt from; None: all."""
        graded = observations.shape[1] if graded is None else graded
        self._head, self._states = head, observations[:, :graded]
        self._seen = head.inputs(observations)
        x = head.first_layer(observations, self._seen)
        self._inputs: list[Tensor] = []
        if head.rest is not None:
            for weight, bias in zip(head.rest.weights, head.rest.biases, strict=True):
                self._inputs.append(x.relu_()[:, :graded])
                x = torch.baddbmm(bias[:, None], x, weight)
        self.answers = x[:, :graded].detach().requires_grad_()
        """(K, graded, out)"""
        self.others = x[:, graded:]
        """(K, B - graded, out)"""

    @torch.no_grad()
    def back(self, gradient: Tensor, into: Gradients) -> None:
        """From the gradient of the answers to those of all parameters."""
        rest = self._head.rest
        if rest is not None:
            for x, weight, bias in zip(self._inputs[::-1], reversed(rest.weights), reversed(rest.biases), strict=True):
                _linear(x, gradient, weight, bias, into)
                gradient = torch.bmm(gradient, weight.transpose(1, 2))
                gradient = torch.ops.aten.threshold_backward(gradient, x, 0)
        if self._head.first is not None:
            assert self._seen is not None
            (weight,), (bias,) = self._head.first.weights, self._head.first.biases
            _linear(self._seen[:, : gradient.shape[1]], gradient, weight, bias, into)
        if self._head.table is not None:
            self._head.table.back(self._states, gradient, into[self._head.table.rows])


def _linear(x: Tensor, gradient: Tensor, weight: nn.Parameter, bias: nn.Parameter, into: Gradients) -> None:
    torch.bmm(x.transpose(1, 2), gradient, out=into[weight])
    torch.sum(gradient, 1, out=into[bias])
