"""Counterfactual Rollout Replay: forks where it pays, learns from the differentials and from the branches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from refork.agents.edit_scorer import EditScorer
from refork.replay.counterfactual import ForkConfig
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit
from refork.trainers.batch import Batch
from refork.trainers.crr.advantages import CrrForm, crr_credit, revisions
from refork.trainers.crr.config import AlgorithmConfig
from refork.trainers.crr.loss import CrrTerms, crr_loss
from refork.trainers.policy_gradient import PolicyGradientTrainer
from torch import Tensor


class Trainer(PolicyGradientTrainer):
    """CRR; the amount of forking adapts and is part of the state."""

    config: AlgorithmConfig

    def __init__(self, config: AlgorithmConfig, network: EditScorer, seed: int) -> None:
        super().__init__(config, network, seed)
        names = CrrForm.__dataclass_fields__
        self._form = CrrForm(**{name: getattr(config, name) for name in names})
        self._forks = config.forks

    def fork_config(self, update: int) -> ForkConfig:
        c = self.config
        return ForkConfig(c.which, c.rule, self._forks, c.alternatives, c.replays, c.floor, c.noise)

    def credit(self, experience: TaskExperience) -> Credit:
        found = crr_credit(experience, self._form)
        return replace(found, targets=revisions(experience)) if self.config.distil else found

    def adapt(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Multiplicative: exp(rate (share of forks with a difference - target)), within bounds."""
        judged = counts.get("forks", 0) - counts.get("masked_forks", 0)
        c = self.config
        if judged and c.adapt:
            share = counts.get("informative_forks", 0) / judged
            self._forks *= math.exp(c.adapt_rate * (share - c.adapt_target))
            self._forks = min(c.forks_max, max(c.forks_min, self._forks))
        return {"forks_per_rollout": self._forks}

    def loss(self, batch: Batch, log_probs: Tensor, reference: Tensor | None) -> CrrTerms:
        return crr_loss(batch, log_probs, reference, self.clip, self.penalty, self.config.distil)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "forks": self._forks}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._forks = state["forks"]
