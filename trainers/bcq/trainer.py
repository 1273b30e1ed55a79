"""Batch-constrained Q-learning from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.bc.loss import discrete_loss
from refork.trainers.bcq.config import AlgorithmConfig
from refork.trainers.bcq.loss import bcq_loss, in_support
from refork.trainers.cql.loss import double_q_target
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import Tensor, nn


class Trainer(OfflineTrainer[AlgorithmConfig]):
    targeted = ("q",)

    def build(self) -> dict[str, nn.Module]:
        action, seeds = self.spec.action, self.config.seeds
        return {
            "q": self.factory.head(action.width, seeds, action.agents),
            "behaviour": self.factory.head(action.width, seeds, action.agents, purpose=1),
        }

    def losses(self, batch: Batch) -> Sequence[Objective]:
        mine = by_agent(batch, self.spec)
        logits = self.networks["behaviour"](mine.observations)
        cloned = discrete_loss(logits, mine.actions, mine.allowed, self.config.shrink)
        q = self.networks["q"](mine.observations)
        return [
            Objective(("behaviour",), cloned),
            Objective(("q",), bcq_loss(q, mine.actions, self._targets(mine))),
        ]

    @torch.no_grad()
    def _targets(self, batch: AgentBatch) -> Tensor:
        following = batch.next_observations
        kept = in_support(self.networks["behaviour"](following), batch.next_allowed, self.config.threshold)
        chosen, valued = self.networks["q"](following), self.targets["q"](following)
        return double_q_target(batch.rewards, batch.discounts, chosen, valued, kept)

    def weights(self) -> dict[str, np.ndarray]:
        gate = self.networks["behaviour"].acting_arrays("gate")  # type: ignore[operator]
        values = self.networks["q"].acting_arrays("q")  # type: ignore[operator]
        return {**values, **gate, "gate_threshold": np.array(self.config.threshold)}
