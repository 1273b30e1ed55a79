"""Conservative Q-learning from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.trainers.cql.config import AlgorithmConfig
from refork.trainers.cql.loss import cql_loss, double_q_target
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import nn


class Trainer(OfflineTrainer[AlgorithmConfig]):
    targeted = ("q",)

    def build(self) -> dict[str, nn.Module]:
        return {"q": self.factory.head(self.spec.action.width, self.config.seeds)}

    def losses(self, batch: Batch) -> Sequence[Objective]:
        allowed = None if batch.allowed is None else batch.allowed[:, :, 0]
        next_allowed = None if batch.next_allowed is None else batch.next_allowed[:, :, 0]
        with torch.no_grad():
            targets = double_q_target(
                batch.rewards,
                batch.discounts,
                self.networks["q"](batch.next_observations),
                self.targets["q"](batch.next_observations),
                next_allowed,
            )
        q = self.networks["q"](batch.observations)
        return [Objective(("q",), cql_loss(q, batch.actions[..., 0], targets, allowed, self.config.alpha))]

    def weights(self) -> dict[str, np.ndarray]:
        return self.networks["q"].acting_arrays("q")  # type: ignore[operator]
