"""What conservative Q-learning of a joint value of continuous actions shares: twin central critics, actors (MATD3)."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from refork.agents.joint_q import CentralQ, CentralView, split_agents
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.candidates import Candidates, policy_candidates, together, uniform_candidates
from refork.trainers.joint_batch import joint_observations
from refork.trainers.joint_config import JointConfig
from refork.trainers.joint_loss import policy_terms, twin_minimum, twin_terms
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from torch import Tensor, nn

Config = TypeVar("Config", bound=JointConfig)


@dataclass(frozen=True)
class TwinSight:
    """What is known of a minibatch when the conservative term is asked for; twins beside each other, seed-major."""

    view: CentralView
    actions: Tensor
    """(2 S, B, n, d) in [-1, 1], logged."""
    logged: Tensor
    """Q_tot(s, a_D) (2 S, B)."""
    candidates: Candidates
    """(S, B, n, C, d)"""
    own: AgentBatch


class JointContinuousTrainer(OfflineTrainer[Config]):
    """Subclasses give the conservative term."""

    targeted = ("q", "actors")

    def build(self) -> dict[str, nn.Module]:
        action, seeds = self.spec.action, self.config.seeds
        actors = self.factory.head(action.width, seeds, action.agents, purpose=2)
        return {"q": CentralQ(self.factory, seeds, purpose=0, copies=2), "actors": actors}

    @abstractmethod
    def conservative(self, sight: TwinSight) -> tuple[Tensor, list[Objective]]:
        """The term that `alpha` weighs (2 S,), and what else is learnt from."""

    def losses(self, batch: Batch) -> Sequence[Objective]:
        own = by_agent(batch, self.spec)
        actions = split_agents(own.actions, self.spec.action.agents).repeat_interleave(2, 0)
        view = self._view(self.networks, batch.observations)
        means = self._actors(self.networks, own.observations)  # (S, B, n, d)
        logged = view.of(actions[:, :, None]).squeeze(-1)
        sight = TwinSight(view, actions, logged, self._candidates(means, own), own)
        gap, found = self.conservative(sight)
        terms = twin_terms(logged, self._targets(batch, own), gap, self.config.alpha)
        acts = torch.tanh(means).repeat_interleave(2, 0)[..., None, :]
        swept = twin_minimum(view.frozen().sweep(actions, acts).squeeze(-1))
        policy = policy_terms(swept, means, self.config.shrink)
        return [*found, Objective(("q",), terms), Objective(("actors",), policy)]

    @torch.no_grad()
    def _candidates(self, means: Tensor, own: AgentBatch) -> Candidates:
        """A third each: uniform ones, the policy's, and those of the next observation's policy."""
        _, b, n, d = means.shape
        count = self.config.candidates
        following = self._actors(self.networks, own.next_observations)
        log_std = torch.full((d,), math.log(self.config.candidate_std))
        anywhere = uniform_candidates(self.uniform(b, n, count, d))
        here, next_ = self.normal(b, n, 2 * count, d).split(count, -2)
        return together(
            [anywhere, policy_candidates(means, log_std, here), policy_candidates(following, log_std, next_)]
        )

    @torch.no_grad()
    def _targets(self, batch: Batch, own: AgentBatch) -> Tensor:
        """r + discount min_twins Q_tot'(s', pi'(s') + clipped noise) (S, B) (TD3, arXiv 1802.09477, eq. 14)."""
        acts = torch.tanh(self._actors(self.targets, own.next_observations))
        limit = self.config.target_clip
        noise = (self.normal(*acts.shape[1:]) * self.config.target_noise).clamp(-limit, limit)
        acts = (acts + noise).clamp(-1.0, 1.0).repeat_interleave(2, 0)
        view = self._view(self.targets, batch.next_observations)
        return batch.rewards + batch.discounts * twin_minimum(view.of(acts[:, :, None]).squeeze(-1))

    def _view(self, networks: nn.ModuleDict, observations: Tensor) -> CentralView:
        return networks["q"].at(joint_observations(observations, self.spec.observation))  # type: ignore[operator]

    def _actors(self, networks: nn.ModuleDict, own: Tensor) -> Tensor:
        """(S, B, n, d), before tanh."""
        return split_agents(networks["actors"](own), self.spec.action.agents)

    def weights(self) -> dict[str, np.ndarray]:
        return self.networks["actors"].acting_arrays("action")  # type: ignore[operator]
