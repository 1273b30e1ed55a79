"""Learns from forks and merges by one of the estimators that read the state DAG (trainers/estimators/)."""

from __future__ import annotations

from functools import partial

from refork.agents.edit_scorer import EditScorer
from refork.replay.counterfactual import ForkConfig
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit
from refork.trainers.batch import Batch
from refork.trainers.estimators.cost_aware import Base
from refork.trainers.estimators.registry import ESTIMATORS
from refork.trainers.policy_gradient import PolicyGradientTrainer
from refork.trainers.tree.config import USES, AlgorithmConfig
from refork.trainers.tree.loss import TreeTerms, tree_loss
from torch import Tensor

CONTINUATIONS = {"vineppo": 9, "spo": 9}
"""K of the sources' own settings; 2 where nothing is said."""


def estimator_of(config: AlgorithmConfig, name: str) -> Base:
    """The estimator `name` with the options that `config` has for it."""
    options = {key: getattr(config, key) for key in ESTIMATORS[name].options.__dataclass_fields__}
    return partial(ESTIMATORS[name], **options)


def forks_of(config: AlgorithmConfig) -> ForkConfig | None:
    """What the estimator wants forked, its first actions drawn from the policy; None where merges are all it reads."""
    name = config.reads
    if "which" not in USES[name]:
        return None
    return ForkConfig(
        config.which,
        "late" if name == "branpo" else config.rule,
        config.forks,
        config.alternatives or CONTINUATIONS.get(name, 2),
        floor=config.floor,
        noise=config.noise,
        actions="policy",
        every={"vineppo": 1, "spo": config.segment}.get(name, 0),
        by_difficulty=name == "branpo",
    )


class Trainer(PolicyGradientTrainer):
    """Clipped policy gradient on what the estimator gives."""

    config: AlgorithmConfig

    def __init__(self, config: AlgorithmConfig, network: EditScorer, seed: int) -> None:
        super().__init__(config, network, seed)
        self._estimator = estimator_of(config, config.reads)
        if config.estimator == "cost_aware":
            self._estimator = partial(
                ESTIMATORS["cost_aware"],
                base=self._estimator,
                share=config.share,
                weight_clip=config.weight_clip,
                seed=seed,
            )

    def fork_config(self, update: int) -> ForkConfig | None:
        return forks_of(self.config)

    def credit(self, experience: TaskExperience) -> Credit:
        return self._estimator(experience)

    def loss(self, batch: Batch, log_probs: Tensor, reference: Tensor | None) -> TreeTerms:
        return tree_loss(batch, log_probs, reference, self.clip, self.penalty)
