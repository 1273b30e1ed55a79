"""Behaviour cloning from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.agents.squashed import SquashedGaussian
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.bc.config import AlgorithmConfig
from refork.trainers.bc.loss import BCTerms, discrete_loss, gaussian_loss, mean_loss
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import nn


class Trainer(OfflineTrainer[AlgorithmConfig]):
    def build(self) -> dict[str, nn.Module]:
        action, seeds = self.spec.action, self.config.seeds
        if action.kind == "continuous" and self.config.policy == "gaussian":
            head = self.factory.head(2 * action.width, seeds, action.agents)
            return {"policy": SquashedGaussian(head, action.width)}
        return {"policy": self.factory.head(action.width, seeds, action.agents)}

    def losses(self, batch: Batch) -> Sequence[Objective]:
        return [Objective(("policy",), self._terms(by_agent(batch, self.spec)))]

    def _terms(self, batch: AgentBatch) -> BCTerms:
        found, shrink = self.networks["policy"](batch.observations), self.config.shrink
        if self.spec.action.kind == "discrete":
            return discrete_loss(found, batch.actions, batch.allowed, shrink)
        if self.config.policy == "gaussian":
            mean, log_std = found
            return gaussian_loss(mean, log_std, batch.actions, shrink)
        return mean_loss(found, batch.actions, shrink)

    def weights(self) -> dict[str, np.ndarray]:
        prefix = "logits" if self.spec.action.kind == "discrete" else "action"
        return self.networks["policy"].acting_arrays(prefix)  # type: ignore[operator]
