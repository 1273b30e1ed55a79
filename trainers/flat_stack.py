"""The parameters of stacked networks as few long tensors: clipping, Adam and moving a target are one operation each.

On small networks those operations, a tensor at a time, cost as much as the gradients themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ALONE = 1 << 17
"""Numbers a member from which a parameter keeps its own memory: it gains nothing, and look-ups want it contiguous."""


class FlatStack:
    """Owns the memory of a network's parameters, each (K, ...) with the same seeds in front; it goes on as before."""

    def __init__(self, network: nn.Module, seeds: int) -> None:
        self._seeds = seeds
        self.flats: list[nn.Parameter] = []
        """(K, numbers) each: what the optimiser steps."""
        self._gradients: list[Tensor] = []
        self.gradients: dict[nn.Parameter, Tensor] = {}
        """Where the gradient of each parameter is written."""
        for group in _groups(list(network.parameters())):
            flat = nn.Parameter(torch.cat([p.detach().reshape(len(p), -1) for p in group], 1))
            gradient = torch.zeros_like(flat)
            for p, now, its in zip(group, _views(flat.data, group), _views(gradient, group), strict=True):
                p.data, self.gradients[p] = now, its
            self.flats.append(flat)
            self._gradients.append(gradient)

    @property
    def written(self) -> Sequence[Tensor]:
        """The memory of `gradients`."""
        return self._gradients

    def clip(self, limit: float) -> None:
        """Let the optimiser see what `gradients` holds, each seed's part shortened to a norm of at most `limit`."""
        by_seed = [g.view(self._seeds, -1) for g in self._gradients]
        norms = [torch.linalg.vector_norm(g, dim=1, keepdim=True) for g in by_seed]
        norm = norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms), dim=0)
        factors = (limit / norm).clamp_max_(1.0)  # a gradient of 0 stays: limit / 0 is cut to 1
        clipped = bool((factors != 1).any())
        for flat, gradient, g in zip(self.flats, self._gradients, by_seed, strict=True):
            flat.grad = gradient
            if clipped:
                g.mul_(factors)

    def rest(self) -> None:
        """The optimiser leaves the network as it is."""
        for flat in self.flats:
            flat.grad = None

    @torch.no_grad()
    def follow(self, leader: FlatStack, rate: float) -> None:
        """Move by `rate` of the way to a network of the same shape."""
        for kept, now in zip(self.flats, leader.flats, strict=True):
            kept.lerp_(now, rate)


def adam_step(optimiser: torch.optim.Adam) -> None:
    """`optimiser.step()` of a fused one, without what PyTorch does around it: on small networks that takes longer."""
    (group,) = optimiser.param_groups
    stepped = [p for p in group["params"] if p.grad is not None]
    if not all(p in optimiser.state for p in stepped):
        optimiser.step()  # makes the state
        return
    gradients = [p.grad for p in stepped]
    first, second, steps = ([optimiser.state[p][k] for p in stepped] for k in ("exp_avg", "exp_avg_sq", "step"))
    beta1, beta2 = group["betas"]
    with torch.no_grad():
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            stepped, gradients, first, second, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
            weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip


def _groups(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Those that share a tensor: the same members in front, and not large."""
    groups: dict[tuple[int, int], list[nn.Parameter]] = {}
    for number, p in enumerate(parameters):
        alone = p[0].numel() >= ALONE
        groups.setdefault((len(p), number if alone else -1), []).append(p)
    return list(groups.values())


def _views(flat: Tensor, group: Sequence[nn.Parameter]) -> list[Tensor]:
    """(K, numbers) -> each parameter's shape, over the same memory."""
    parts = flat.split([p[0].numel() for p in group], 1)
    return [part.unflatten(1, p.shape[1:]) if p.ndim > 1 else part[:, 0] for part, p in zip(parts, group, strict=True)]
