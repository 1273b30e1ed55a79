"""Worlds in which a hidden confounder z of the episode may have made a log: networks given z, several worlds as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from refork.agents.latents import ABSENT, Latent, LatentHead, priors
from refork.agents.q_networks import LogNetworks
from refork.agents.world_outcomes import Outcomes
from torch import Tensor, nn
from torch.nn import functional

LEAST_SCALE = math.log(0.1)
"""Of what a world predicts, in standard deviations: a reward that is 0 almost always must not outweigh all else."""


@dataclass(frozen=True)
class Seen:
    """B transitions as each of K members sees them."""

    observations: Tensor
    """(K, B, ...)"""
    actions: Tensor
    """(K, B) int64"""
    next_observations: Tensor
    """(K, B, ...)"""
    change: Tensor
    """(K, B, F) float32: of the standardised features that are numbers."""
    levels: Tensor
    """(K, B, C) int64: of the features that are categories, in the state that followed."""
    rewards: Tensor
    """(K, B) float32: standardised."""
    terminated: Tensor
    """(K, B) bool"""
    allowed: Tensor | None = None
    """(K, B, A) bool, or None: all."""


class Worlds(nn.Module):
    """W worlds for each of S seeds, with `bootstraps` values each: members are seed-major, then by world."""

    nodes: Tensor
    prior_logits: Tensor
    learnt: Tensor

    def __init__(
        self, factory: LogNetworks, latents: Sequence[Latent], hidden: Sequence[int], *, seeds: int, bootstraps: int
    ) -> None:
        super().__init__()
        count, self.outcomes = len(latents), Outcomes.of(factory.shape)
        self.width, self.bootstraps = factory.spec.action.width, bootstraps
        nodes, logits, learnt = priors(latents)
        for name, tensor in (("nodes", nodes), ("prior_logits", logits), ("learnt", learnt)):
            self.register_buffer(name, tensor.repeat(seeds, *[1] * (tensor.dim() - 1)), persistent=False)
        points, inputs = nodes.shape[1:]
        self.prior_shift = nn.Parameter(torch.zeros(seeds * count, points))
        self.log_scale = nn.Parameter(torch.zeros(seeds * count, len(self.outcomes.numbers) + 1))
        out = len(self.outcomes.numbers) + sum(self.outcomes.levels)
        stack = {"seeds": seeds, "copies": count}
        self.behaviour = LatentHead(factory, self.width, inputs, hidden, **stack, purpose=101)
        self.following = LatentHead(factory, out, inputs, hidden, **stack, purpose=103, extra=self.width)
        self.ending = LatentHead(factory, 2, inputs, hidden, **stack, purpose=109, extra=self.width)
        self.arrival = factory.head(hidden[0], seeds, count, purpose=111, hidden=())
        self.given_state = factory.head(points, seeds, count, purpose=105, hidden=hidden)
        self.values = LatentHead(
            factory, self.width, inputs, hidden, seeds=seeds, copies=count * bootstraps, purpose=107
        )

    def log_prior(self) -> Tensor:
        """(K, M): log p(z)."""
        return torch.log_softmax(self.prior_logits + self.learnt * self.prior_shift, -1)

    def log_given_state(self, observations: Tensor) -> Tensor:
        """(K, B, ...) -> (K, M, B): log p(z | s), of who is met in s under the logged behaviour."""
        logits = self.given_state(observations).transpose(1, 2)
        return torch.log_softmax(torch.where(self.prior_logits[..., None] > ABSENT / 2, logits, ABSENT), 1)

    def log_behaviour(self, observations: Tensor, allowed: Tensor | None = None) -> Tensor:
        """(K, B, ...) -> (K, M, B, A): log pi_b(a | s, z); about ABSENT where not allowed."""
        logits = self.behaviour(observations, self.nodes)
        logits = logits if allowed is None else logits.masked_fill(~allowed[:, None], ABSENT)
        return torch.log_softmax(logits, -1)

    def log_likelihood(self, seen: Seen) -> Tensor:
        """(K, M, B): log pi_b(a | s, z) + log p(s', r, end | s, a, z)."""
        return self.log_taken(seen) + self._log_outcome(seen)

    def log_taken(self, seen: Seen) -> Tensor:
        """(K, M, B): log pi_b(a | s, z) of the logged actions."""
        acted = self.log_behaviour(seen.observations, seen.allowed)
        index = seen.actions[:, None, :, None].expand(-1, acted.shape[1], -1, 1)
        return acted.gather(-1, index).squeeze(-1)

    def _log_outcome(self, seen: Seen) -> Tensor:
        """log p(s' | s, a, z) + log p(r, end | s, a, s', z)."""
        extra = functional.one_hot(seen.actions, self.width).float()
        numbers = len(self.outcomes.numbers)
        found = self.following(seen.observations, self.nodes, extra).split([numbers, *self.outcomes.levels], -1)
        arrived = self.arrival(seen.next_observations)
        reward, ended = self.ending(seen.observations, self.nodes, extra, arrived).unbind(-1)
        mean = torch.cat([found[0], reward[..., None]], -1)
        scale = self.log_scale.clamp_min(LEAST_SCALE)[:, None, None]
        errors = (torch.cat([seen.change, seen.rewards[..., None]], -1)[:, None] - mean) * torch.exp(-scale)
        total = (-0.5 * errors.square() - scale - 0.5 * math.log(2 * math.pi)).sum(-1)
        sign = 2.0 * seen.terminated[:, None].float() - 1.0
        total = total + functional.logsigmoid(sign * ended)
        for logits, level in zip(found[1:], seen.levels.unbind(-1), strict=True):
            index = level[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
            total = total + torch.log_softmax(logits, -1).gather(-1, index).squeeze(-1)
        return total

    def by_bootstrap(self, tensor: Tensor) -> Tensor:
        """(K, ...) -> (K * bootstraps, ...), as the members of `values` stand."""
        return tensor.repeat_interleave(self.bootstraps, 0)
