"""OMAR from logs: independent conservative critics, actors rectified by a search of the zeroth order."""

from __future__ import annotations

import numpy as np
import torch
from refork.trainers.agent_batch import AgentBatch
from refork.trainers.cql.continuous import ContinuousTrainer as ContinuousCQL
from refork.trainers.cql.trainer import DiscreteTrainer as DiscreteCQL
from refork.trainers.offline import Objective, by_actions
from refork.trainers.omar.config import AlgorithmConfig
from refork.trainers.omar.loss import rectified, rectified_softmax, search
from torch import Tensor, nn


class DiscreteTrainer(DiscreteCQL):
    """The critics' greedy policy is known exactly, so softmax actors are drawn to it."""

    config: AlgorithmConfig

    def build(self) -> dict[str, nn.Module]:
        action = self.spec.action
        return super().build() | {
            "actors": self.factory.head(action.width, self.config.seeds, action.agents, purpose=2)
        }

    def agent_losses(self, mine: AgentBatch) -> list[Objective]:
        critic, *others = super().agent_losses(mine)
        logits, values = self.networks["actors"](mine.observations), critic.passes[0].answers
        terms = rectified_softmax(logits, values, mine.allowed, self.config.entropy, self.config.coefficient)
        return [critic, *others, Objective(("actors",), terms)]

    def weights(self) -> dict[str, np.ndarray]:
        return self.networks["actors"].acting_arrays("logits")  # type: ignore[operator]


class ContinuousTrainer(ContinuousCQL):
    """The policy's loss is mixed with the distance of its mean from the best action found."""

    config: AlgorithmConfig

    def agent_losses(self, mine: AgentBatch) -> list[Objective]:
        distance = self._distance(mine)
        return [
            Objective(o.networks, rectified(o.terms.total, distance, self.config.coefficient))
            if o.networks == ("policy",)
            else o
            for o in super().agent_losses(mine)
        ]

    def _distance(self, mine: AgentBatch) -> Tensor:
        """(K,)"""
        config = self.config
        acts = torch.tanh(self.networks["policy"](mine.observations)[0])
        shape = (self.spec.action.agents, config.iterations, acts.shape[1], config.search, acts.shape[2])
        noise = self.normal(*shape, rows=2)
        noise = noise.flatten(0, 1).transpose(0, 1)  # (S, n, rounds, ...) -> (rounds, K, B, N, d)
        best = search(
            lambda a: self._values(self.networks["q"], mine.observations, a).amin(1), acts, noise, config.elites
        )
        return (acts - best).square().sum(-1).mean(-1)


Trainer = by_actions(DiscreteTrainer, ContinuousTrainer)
