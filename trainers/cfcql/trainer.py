"""Counterfactual conservative Q-learning from logs."""

from __future__ import annotations

from refork.agents.joint_q import split_agents
from refork.trainers.bc.loss import discrete_loss
from refork.trainers.cfcql.config import AlgorithmConfig
from refork.trainers.cfcql.loss import agent_weights, counterfactual_gap, divergence
from refork.trainers.joint_discrete import JointDiscreteTrainer, Sight
from refork.trainers.offline import Objective
from torch import Tensor, nn


class DiscreteTrainer(JointDiscreteTrainer[AlgorithmConfig]):
    """The clone of the behaviour that the weights of decision makers need is learnt in the same pass."""

    def build(self) -> dict[str, nn.Module]:
        action = self.spec.action
        clone = self.factory.head(action.width, self.config.seeds, action.agents, purpose=3)
        return super().build() | {"behaviour": clone}

    def conservative(self, sight: Sight) -> tuple[Tensor, list[Objective]]:
        behaviour = self.networks["behaviour"](sight.own.observations)
        clone = discrete_loss(behaviour, sight.own.actions, sight.own.allowed, shrink=0.0)
        kl = divergence(sight.swept, split_agents(behaviour, self.spec.action.agents), sight.allowed)
        gap = counterfactual_gap(sight.swept, sight.logged, agent_weights(kl, self.config.temp), sight.allowed)
        return gap, [Objective(("behaviour",), clone)]


Trainer = DiscreteTrainer
