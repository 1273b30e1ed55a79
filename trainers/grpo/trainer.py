"""GRPO, Dr.GRPO, RLOO and MaxRL: outcome-only, no forks."""

from __future__ import annotations

from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit, outcome_credit
from refork.trainers.batch import Batch
from refork.trainers.grpo.config import AlgorithmConfig
from refork.trainers.grpo.loss import GrpoTerms, grpo_loss
from refork.trainers.policy_gradient import PolicyGradientTrainer
from torch import Tensor


class Trainer(PolicyGradientTrainer):
    """Outcome-only policy gradient over groups."""

    config: AlgorithmConfig

    @property
    def divisible(self) -> bool:  # type: ignore[override]
        """A mean over rollouts is none over decisions."""
        return self.config.aggregate == "decisions"

    def credit(self, experience: TaskExperience) -> Credit:
        return outcome_credit(experience, self.config.estimator)

    def loss(self, batch: Batch, log_probs: Tensor, reference: Tensor | None) -> GrpoTerms:
        return grpo_loss(batch, log_probs, reference, self.config.aggregate, self.clip, self.penalty)
