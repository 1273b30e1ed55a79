"""Batch-constrained Q-learning from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.agents.head_pass import HeadPass
from refork.trainers.agent_batch import by_agent
from refork.trainers.bc.loss import discrete_loss
from refork.trainers.bcq.config import AlgorithmConfig
from refork.trainers.bcq.loss import bcq_loss, in_support
from refork.trainers.cql.loss import double_q_target
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import nn


class Trainer(OfflineTrainer[AlgorithmConfig]):
    targeted = ("q",)

    def build(self) -> dict[str, nn.Module]:
        action, seeds = self.spec.action, self.config.seeds
        return {
            "q": self.factory.head(action.width, seeds, action.agents),
            "behaviour": self.factory.head(action.width, seeds, action.agents, purpose=1),
        }

    def losses(self, batch: Batch) -> Sequence[Objective]:
        mine, config = by_agent(batch, self.spec), self.config
        q, behaviour = (
            HeadPass(self.networks[name], mine.both, graded=mine.rewards.shape[1])  # type: ignore[arg-type]
            for name in ("q", "behaviour")
        )
        kept = in_support(behaviour.others, mine.next_allowed, config.threshold)
        valued = self.target_values("q", mine)
        targets = double_q_target(mine.rewards, mine.discounts, q.others, valued, kept)
        cloned = discrete_loss(behaviour.answers, mine.actions, mine.allowed, config.shrink)
        return [
            Objective(("behaviour",), cloned, (behaviour,)),
            Objective(("q",), bcq_loss(q.answers, mine.actions, targets), (q,)),
        ]

    def weights(self) -> dict[str, np.ndarray]:
        gate = self.networks["behaviour"].acting_arrays("gate")  # type: ignore[operator]
        values = self.networks["q"].acting_arrays("q")  # type: ignore[operator]
        return {**values, **gate, "gate_threshold": np.array(self.config.threshold)}
