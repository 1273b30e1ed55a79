"""Conservative Q-learning from logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.agents.head_pass import HeadPass
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.cql.config import AlgorithmConfig
from refork.trainers.cql.continuous import ContinuousTrainer
from refork.trainers.cql.loss import cql_loss, double_q_target
from refork.trainers.cql.weight import alpha_networks, alpha_objectives, alpha_of
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer, by_actions
from torch import nn


class DiscreteTrainer(OfflineTrainer[AlgorithmConfig]):
    """Double DQN with the conservative term."""

    targeted = ("q",)

    def build(self) -> dict[str, nn.Module]:
        action, config = self.spec.action, self.config
        q = self.factory.head(action.width, config.seeds, action.agents)
        return {"q": q, **alpha_networks(config, config.seeds * action.agents)}

    def losses(self, batch: Batch) -> Sequence[Objective]:
        return self.agent_losses(by_agent(batch, self.spec))

    def agent_losses(self, mine: AgentBatch) -> list[Objective]:
        """The first one's pass holds the values of the observations."""
        passed = HeadPass(self.networks["q"], mine.both, graded=mine.rewards.shape[1])  # type: ignore[arg-type]
        valued = self.target_values("q", mine)
        targets = double_q_target(mine.rewards, mine.discounts, passed.others, valued, mine.next_allowed)
        alpha = alpha_of(self.config, self.networks)
        terms = cql_loss(passed.answers, mine.actions, targets, mine.allowed, alpha)
        return [Objective(("q",), terms, (passed,)), *alpha_objectives(self.config, self.networks, terms)]

    def weights(self) -> dict[str, np.ndarray]:
        return self.networks["q"].acting_arrays("q")  # type: ignore[operator]


Trainer = by_actions(DiscreteTrainer, ContinuousTrainer)
