"""Conservative Q-learning over joint actions, from logs."""

from __future__ import annotations

import torch
from refork.trainers.candidates import weigh
from refork.trainers.cql.loss import masked
from refork.trainers.joint_continuous import JointContinuousTrainer, TwinSight
from refork.trainers.joint_discrete import JointDiscreteTrainer, Sight
from refork.trainers.macql.config import AlgorithmConfig
from refork.trainers.macql.loss import all_joint, joint_gap, policy_joint, uniform_joint
from refork.trainers.offline import Objective, by_actions
from torch import Tensor


class DiscreteTrainer(JointDiscreteTrainer[AlgorithmConfig]):
    """All joint actions where they are few, else sampled ones."""

    def conservative(self, sight: Sight) -> tuple[Tensor, list[Objective]]:
        action = self.spec.action
        if action.width**action.agents <= self.config.joint_actions:
            return self._exact(sight), []
        actions, log_probability = self._sampled(sight)
        return joint_gap(weigh(sight.view.of(actions), log_probability), sight.logged), []

    def _exact(self, sight: Sight) -> Tensor:
        joint = all_joint(self.spec.action.agents, self.spec.action.width)
        actions = joint.expand(*sight.actions.shape[:2], *joint.shape)  # (S, B, J, n)
        available = None
        if sight.allowed is not None:
            available = sight.allowed.gather(-1, actions.transpose(-1, -2)).all(-2)  # (S, B, n, J) -> (S, B, J)
        return joint_gap(sight.view.of(actions), sight.logged, available)

    @torch.no_grad()
    def _sampled(self, sight: Sight) -> tuple[Tensor, Tensor]:
        """Joint actions (S, B, M, n) and log-probabilities (S, B, M)."""
        logits, half = sight.logits.detach(), self.config.joint_actions // 2
        allowed = torch.ones(logits.shape, dtype=torch.bool) if sight.allowed is None else sight.allowed
        _, b, n = sight.actions.shape
        found, even = uniform_joint(self.uniform(b, half, n), allowed)
        acted, likely = policy_joint(self.uniform(b, half, n), masked(logits, sight.allowed))
        return torch.cat([found, acted], -2), torch.cat([even, likely], -1)


class ContinuousTrainer(JointContinuousTrainer[AlgorithmConfig]):
    """The c-th candidates of all decision makers make a joint one."""

    def conservative(self, sight: TwinSight) -> tuple[Tensor, list[Objective]]:
        candidates = sight.candidates
        actions = candidates.actions.transpose(2, 3).repeat_interleave(2, 0)  # (2 S, B, C, n, d)
        log_density = candidates.log_density.sum(2).repeat_interleave(2, 0)
        return joint_gap(weigh(sight.view.of(actions), log_density), sight.logged), []


Trainer = by_actions(DiscreteTrainer, ContinuousTrainer)
