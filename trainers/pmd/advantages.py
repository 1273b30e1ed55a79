"""Advantages of whole games. The last round is a true end: nothing is bootstrapped past it, and gamma is 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def gae(rewards: Tensor, values: Tensor, lam: float) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and the lambda-returns they imply (Schulman et al., arXiv 1506.02438).

    `rewards`, `values`: (T, ...), of the same state before the move. Returns two of that shape.
    """
    deltas = rewards - values
    deltas[:-1] += values[1:]
    advantages = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        running = deltas[t] + lam * running
        advantages[t] = running
    return advantages, advantages + values


def counterfactual_baseline(q: Tensor, log_probs: Tensor) -> Tensor:
    """sum_a pi(a) Q(s, a, a_-i): what was to be expected before one's own move, the partner's known (COMA,
    arXiv 1705.08926, eq. 4). It does not depend on one's own move, so it biases no policy gradient.

    (R, moves), (R, moves) with -inf at illegal moves -> (R,).
    """
    return (log_probs.exp() * q).sum(1)


class RunningScale:
    """Mean and spread of value targets per operator, followed exponentially; critics predict in these units."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._moments: Tensor | None = None
        """(2, operators): mean and mean square."""

    @property
    def unset(self) -> bool:
        return self._moments is None

    def update(self, targets: Tensor) -> None:
        """`targets`: (..., operators). The first ones set the scale."""
        flat = targets.reshape(-1, targets.shape[-1]).double()
        seen = torch.stack([flat.mean(0), flat.square().mean(0)])
        self._moments = seen if self._moments is None else torch.lerp(self._moments, seen, self._rate)

    def _mean_and_spread(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if self._moments is None:
            return torch.zeros(1), torch.ones(1)
        mean, square = self._moments
        spread = (square - mean.square()).clamp(min=0).sqrt().clamp(min=1e-6)
        return mean.to(like.dtype), spread.to(like.dtype)

    def normalise(self, values: Tensor) -> Tensor:
        mean, spread = self._mean_and_spread(values)
        return (values - mean) / spread

    def restore(self, values: Tensor) -> Tensor:
        mean, spread = self._mean_and_spread(values)
        return values * spread + mean

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self._moments}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._moments = state["moments"]
