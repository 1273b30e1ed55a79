"""Counterfactual conservative Q-learning from logs."""

from __future__ import annotations

from refork.agents.joint_q import split_agents
from refork.agents.squashed import SquashedGaussian, log_density
from refork.trainers.bc.loss import discrete_loss, gaussian_loss
from refork.trainers.candidates import weigh
from refork.trainers.cfcql.config import AlgorithmConfig
from refork.trainers.cfcql.loss import agent_weights, candidate_divergence, counterfactual_gap, divergence
from refork.trainers.joint_continuous import JointContinuousTrainer, TwinSight
from refork.trainers.joint_discrete import JointDiscreteTrainer, Sight
from refork.trainers.offline import Objective, by_actions
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


class ContinuousTrainer(JointContinuousTrainer[AlgorithmConfig]):
    """As on discrete actions, on candidates; the clone is a squashed Gaussian."""

    def build(self) -> dict[str, nn.Module]:
        action = self.spec.action
        head = self.factory.head(2 * action.width, self.config.seeds, action.agents, purpose=3)
        return super().build() | {"behaviour": SquashedGaussian(head, action.width)}

    def conservative(self, sight: TwinSight) -> tuple[Tensor, list[Objective]]:
        mean, log_std = self.networks["behaviour"](sight.own.observations)
        clone = gaussian_loss(mean, log_std, sight.own.actions, shrink=0.0)
        candidates, n = sight.candidates, self.spec.action.agents
        centre, spread = (split_agents(x.detach(), n)[..., None, :] for x in (mean, log_std))
        likely = log_density(centre, spread, candidates.actions)  # (S, B, n, C)
        values = sight.view.sweep(sight.actions, candidates.actions.repeat_interleave(2, 0))
        summands = weigh(values, candidates.log_density.repeat_interleave(2, 0))
        kl = candidate_divergence(values, summands, likely.repeat_interleave(2, 0))
        gap = counterfactual_gap(summands, sight.logged, agent_weights(kl, self.config.temp))
        return gap, [Objective(("behaviour",), clone)]


Trainer = by_actions(DiscreteTrainer, ContinuousTrainer)
