"""Conservative Q-learning on continuous actions: soft actor-critic with twin critics and the conservative term."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.agents.multiplier import Multiplier
from refork.agents.squashed import SquashedGaussian, sample
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.candidates import Candidates, policy_candidates, together, uniform_candidates
from refork.trainers.cql.config import AlgorithmConfig
from refork.trainers.cql.loss import CQLTerms, continuous_loss, multiplier_loss, policy_loss, soft_target
from refork.trainers.cql.weight import alpha_networks, alpha_objectives, alpha_of
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import Tensor, nn


class ContinuousTrainer(OfflineTrainer[AlgorithmConfig]):
    """Every decision maker has two critics, a policy and a temperature of its own."""

    targeted = ("q",)

    def build(self) -> dict[str, nn.Module]:
        config, n, d = self.config, self.spec.action.agents, self.spec.action.width
        policy = self.factory.head(2 * d, config.seeds, n, purpose=1)
        return {
            "q": self.factory.head(1, config.seeds, 2 * n, extra=d),
            "policy": SquashedGaussian(policy, d),
            "temperature": Multiplier(config.seeds * n, config.temperature),
            **alpha_networks(config, config.seeds * n),
        }

    def losses(self, batch: Batch) -> Sequence[Objective]:
        return self.agent_losses(by_agent(batch, self.spec))

    def agent_losses(self, mine: AgentBatch) -> list[Objective]:
        """Of critics, policy, temperature and, where it is learnt, the conservative term's weight."""
        dimensions = self.spec.action.width
        temperature = self.networks["temperature"]()
        critic = self._critic_terms(mine, temperature.detach())
        mean, log_std = self.networks["policy"](mine.observations)
        actions, densities = sample(mean, log_std, self._normal(mine, 1)[:, :, 0])
        own = self._values(self.networks["q"], mine.observations, actions[:, :, None])[..., 0]
        policy = policy_loss(own, densities, temperature.detach())
        return [
            Objective(("q",), critic),
            Objective(("policy",), policy),
            Objective(("temperature",), multiplier_loss(temperature, -dimensions - policy.entropy)),
            *alpha_objectives(self.config, self.networks, critic),
        ]

    def _critic_terms(self, batch: AgentBatch, temperature: Tensor) -> CQLTerms:
        uniform, own, following = self._candidates(batch)
        others = together([uniform, own, Candidates(following.actions[:, :, 1:], following.log_density[:, :, 1:])])
        actions = torch.cat([batch.actions[:, :, None], others.actions], 2)
        values = self._values(self.networks["q"], batch.observations, actions)
        targets = self._targets(batch, following, temperature)
        alpha = alpha_of(self.config, self.networks)
        return continuous_loss(values[..., 0], targets, values[..., 1:], others.log_density, alpha)

    def _candidates(self, batch: AgentBatch) -> tuple[Candidates, Candidates, Candidates]:
        """Uniform ones, the policy's, and those of the next observation's policy (the target's own is the first)."""
        _, b, d, n = *batch.actions.shape, self.config.samples
        return (
            uniform_candidates(self._members(self.uniform(self.spec.action.agents, b, n, d, rows=1))),
            self._draw(batch, batch.observations, n),
            self._draw(batch, batch.next_observations, n + 1),
        )

    @torch.no_grad()
    def _draw(self, batch: AgentBatch, observations: Tensor, count: int) -> Candidates:
        mean, log_std = self.networks["policy"](observations)
        return policy_candidates(mean, log_std, self._normal(batch, count))

    @torch.no_grad()
    def _targets(self, batch: AgentBatch, following: Candidates, temperature: Tensor) -> Tensor:
        values = self._values(self.targets["q"], batch.next_observations, following.actions[:, :, :1])[..., 0]
        weight = temperature[:, None] if self.config.soft_target else 0.0
        return soft_target(batch.rewards, batch.discounts, values, following.log_density[:, :, 0], weight)

    def _values(self, network: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
        """Both critics on N actions an observation: (K, B, ...), (K, B, N, d) -> (K, 2, B, N)."""
        k, b, n, d = actions.shape
        seen = observations.repeat_interleave(n, 1).repeat_interleave(2, 0)  # (2 K, B N, ...)
        values = network(seen, actions.reshape(k, b * n, d).repeat_interleave(2, 0))
        return values.view(k, 2, b, n)

    def _normal(self, batch: AgentBatch, count: int) -> Tensor:
        """(K, B, count, d)"""
        _, b, d = batch.actions.shape
        return self._members(self.normal(self.spec.action.agents, b, count, d, rows=1))

    @staticmethod
    def _members(noise: Tensor) -> Tensor:
        """(S, n, ...) -> (S n, ...)"""
        return noise.flatten(0, 1)

    def weights(self) -> dict[str, np.ndarray]:
        return self.networks["policy"].acting_arrays("action")  # type: ignore[operator]
