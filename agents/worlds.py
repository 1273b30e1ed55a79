"""Worlds in which a hidden confounder z of the episode may have made a log: networks given z, several worlds as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from refork.agents.latents import ABSENT, Latent, LatentHead, priors
from refork.agents.q_networks import LogNetworks
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
    following: Tensor
    """(K, B, F + 1) float32: change of the standardised features, and the standardised reward."""
    states: Tensor | None
    """(K, B) int64: state that followed, for logs of states without features."""
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
        shape, count = factory.shape, len(latents)
        states = factory.spec.observation.kind == "states"
        self.width, self.bootstraps = factory.spec.action.width, bootstraps
        self.features = 0 if states and shape.state_features is None else len(shape.shift)
        self.states = factory.spec.observation.size if states and shape.state_features is None else 0
        nodes, logits, learnt = priors(latents)
        for name, tensor in (("nodes", nodes), ("prior_logits", logits), ("learnt", learnt)):
            self.register_buffer(name, tensor.repeat(seeds, *[1] * (tensor.dim() - 1)), persistent=False)
        points, inputs = nodes.shape[1:]
        self.prior_shift = nn.Parameter(torch.zeros(seeds * count, points))
        self.log_scale = nn.Parameter(torch.zeros(seeds * count, self.features + 1))
        outcomes = self.features + 2 + self.states
        self.behaviour = LatentHead(factory, self.width, inputs, hidden, seeds=seeds, copies=count, purpose=101)
        self.outcome = LatentHead(
            factory, outcomes, inputs, hidden, seeds=seeds, copies=count, purpose=103, extra=self.width
        )
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
        extra = functional.one_hot(seen.actions, self.width).float()
        found = self.outcome(seen.observations, self.nodes, extra)
        mean, ended, states = found.split([self.features + 1, 1, self.states], -1)
        scale = self.log_scale.clamp_min(LEAST_SCALE)[:, None, None]
        errors = (seen.following[:, None] - mean) * torch.exp(-scale)
        total = (-0.5 * errors.square() - scale - 0.5 * math.log(2 * math.pi)).sum(-1)
        sign = 2.0 * seen.terminated[:, None].float() - 1.0
        total = total + functional.logsigmoid(sign * ended.squeeze(-1))
        if seen.states is None:
            return total
        index = seen.states[:, None, :, None].expand(-1, states.shape[1], -1, 1)
        return total + torch.log_softmax(states, -1).gather(-1, index).squeeze(-1)

    def by_bootstrap(self, tensor: Tensor) -> Tensor:
        """(K, ...) -> (K * bootstraps, ...), as the members of `values` stand."""
        return tensor.repeat_interleave(self.bootstraps, 0)
