"""What conservative Q-learning of a joint value of discrete actions shares: backbone, double-Q target, actors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from refork.agents.joint_q import CentralQ, MonotonicQ, MonotonicView, OneHotView, split_agents
from refork.trainers.agent_batch import AgentBatch, by_agent, legal
from refork.trainers.cql.loss import masked
from refork.trainers.joint_batch import joint_observations
from refork.trainers.joint_config import JointConfig
from refork.trainers.joint_loss import actor_terms, conservative_terms
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import Tensor, nn

Config = TypeVar("Config", bound=JointConfig)


@dataclass(frozen=True)
class Sight:
    """What is known of a minibatch when the conservative term is asked for."""

    view: MonotonicView | OneHotView
    actions: Tensor
    """(S, B, n) int64, logged."""
    allowed: Tensor | None
    """(S, B, n, A) bool, or None: all."""
    logits: Tensor
    """(S, B, n, A): of what acts; utilities, or actors."""
    own: AgentBatch

    @cached_property
    def logged(self) -> Tensor:
        """Q_tot(s, a_D) (S, B)."""
        return self.view.of(self.actions[:, :, None]).squeeze(-1)

    @cached_property
    def swept(self) -> Tensor:
        """Q_tot(s, a_i, a_D^{-i}) (S, B, n, A)."""
        return self.view.sweep(self.actions)


class JointDiscreteTrainer(OfflineTrainer[Config]):
    """Subclasses give the conservative term."""

    targeted = ("q",)

    def build(self) -> dict[str, nn.Module]:
        action, seeds = self.spec.action, self.config.seeds
        if self.config.mixer == "monotonic":
            return {"q": MonotonicQ(self.factory, seeds, purpose=0)}
        actors = self.factory.head(action.width, seeds, action.agents, purpose=2)
        return {"q": CentralQ(self.factory, seeds, purpose=0), "actors": actors}

    @abstractmethod
    def conservative(self, sight: Sight) -> tuple[Tensor, list[Objective]]:
        """The term that `alpha` weighs (S,), and what else is learnt from."""

    def losses(self, batch: Batch) -> Sequence[Objective]:
        own = by_agent(batch, self.spec)
        view = self._view(self.networks["q"], own.observations, batch.observations)
        logits = view.utilities if isinstance(view, MonotonicView) else self._actors(own.observations)
        sight = Sight(view, batch.actions, legal(batch.allowed, self.spec.action, batch.actions), logits, own)
        gap, found = self.conservative(sight)
        terms = conservative_terms(sight.logged, self._targets(batch, own), gap, self.config.alpha)
        found.append(Objective(("q",), terms))
        if self.config.mixer == "central":
            found.append(Objective(("actors",), actor_terms(logits, sight.swept, sight.allowed, self.config.entropy)))
        return found

    @torch.no_grad()
    def _targets(self, batch: Batch, own: AgentBatch) -> Tensor:
        """r + discount Q_tot'(s', each one's greedy action) (S, B): double Q-learning for the mixer."""
        seen = own.next_observations
        monotonic = self.config.mixer == "monotonic"
        logits = self.networks["q"].utility(seen) if monotonic else self._actors(seen)  # type: ignore[operator]
        allowed = legal(batch.next_allowed, self.spec.action, batch.actions)
        greedy = masked(logits, allowed).argmax(-1)  # (S, B, n)
        view = self._view(self.targets["q"], seen, batch.next_observations)
        return batch.rewards + batch.discounts * view.of(greedy[:, :, None]).squeeze(-1)

    def _view(self, q: nn.Module, own: Tensor, observations: Tensor) -> MonotonicView | OneHotView:
        joint = joint_observations(observations, self.spec.observation)
        if isinstance(q, MonotonicQ):
            return q.at(own, joint)
        return OneHotView(q.at(joint))  # type: ignore[operator]

    def _actors(self, own: Tensor) -> Tensor:
        return split_agents(self.networks["actors"](own), self.spec.action.agents)

    def weights(self) -> dict[str, np.ndarray]:
        if self.config.mixer == "monotonic":
            return self.networks["q"].utilities.acting_arrays("q")  # type: ignore[union-attr, operator]
        return self.networks["actors"].acting_arrays("logits")  # type: ignore[operator]
