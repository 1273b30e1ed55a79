"""Implicit Q-learning from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.agents.squashed import SquashedGaussian, log_density
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.bc.loss import log_likelihood
from refork.trainers.iql.config import AlgorithmConfig
from refork.trainers.iql.loss import policy_loss, value_loss
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import Tensor, nn


class Trainer(OfflineTrainer[AlgorithmConfig]):
    targeted = ("q",)

    @property
    def _discrete(self) -> bool:
        return self.spec.action.kind == "discrete"

    def build(self) -> dict[str, nn.Module]:
        action, seeds, head = self.spec.action, self.config.seeds, self.factory.head
        value = head(1, seeds, action.agents, purpose=1)
        if self._discrete:
            twins = head(action.width, seeds, 2 * action.agents)
            return {"q": twins, "v": value, "policy": head(action.width, seeds, action.agents, purpose=2)}
        twins = head(1, seeds, 2 * action.agents, extra=action.width)
        policy = SquashedGaussian(head(2 * action.width, seeds, action.agents, purpose=2), action.width)
        return {"q": twins, "v": value, "policy": policy}

    def losses(self, batch: Batch) -> Sequence[Objective]:
        mine, config = by_agent(batch, self.spec), self.config
        with torch.no_grad():
            frozen_q = self._logged_q(self.targets["q"], mine).amin(1)
            targets = mine.rewards + mine.discounts * self._value(mine.next_observations)
        value = self._value(mine.observations)
        valued = value_loss(self._logged_q(self.networks["q"], mine), targets, value, frozen_q, config.expectile)
        advantages = frozen_q - value.detach()
        cloned = policy_loss(self._log_likelihood(mine), advantages, config.beta, config.largest_weight)
        return [Objective(("q", "v"), valued), Objective(("policy",), cloned)]

    def _value(self, observations: Tensor) -> Tensor:
        """(K, B)"""
        return self.networks["v"](observations).squeeze(-1)

    def _logged_q(self, network: nn.Module, batch: AgentBatch) -> Tensor:
        """Values of the logged actions, (K, 2, B)."""
        observations, actions = (x.repeat_interleave(2, 0) for x in (batch.observations, batch.actions))
        if self._discrete:
            values = network(observations).gather(-1, actions[..., None])
        else:
            values = network(observations, actions)
        return values.squeeze(-1).unflatten(0, (-1, 2))

    def _log_likelihood(self, batch: AgentBatch) -> Tensor:
        """Of the logged actions, (K, B)."""
        found = self.networks["policy"](batch.observations)
        if not self._discrete:
            mean, log_std = found
            return log_density(mean, log_std, batch.actions)
        return log_likelihood(found, batch.actions, batch.allowed)

    def weights(self) -> dict[str, np.ndarray]:
        """The likeliest action is the one of the greatest "value"."""
        by_kind = ("q" if self.config.act == "best" else "logits") if self._discrete else "action"
        return self.networks["policy"].acting_arrays(by_kind)  # type: ignore[operator]
