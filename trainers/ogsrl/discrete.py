"""Guarded learning of a softmax policy over discrete actions."""

from __future__ import annotations

import numpy as np
import torch
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.agent_batch import AgentBatch
from refork.trainers.bc.loss import discrete_loss
from refork.trainers.cql.loss import masked
from refork.trainers.offline import Objective
from refork.trainers.ogsrl.counted_world import CountedWorld
from refork.trainers.ogsrl.gaussian_world import GaussianWorld
from refork.trainers.ogsrl.guarded import GuardedTrainer
from refork.trainers.ogsrl.loss import PolicyTerms, softmax_policy_loss
from refork.trainers.ogsrl.steps import Steps
from refork.trainers.ogsrl.world import World
from torch import Tensor, nn


class DiscreteTrainer(GuardedTrainer):
    """Expectations over actions are sums, and no action is picked for its value: one critic is enough."""

    _legal_of_states: Tensor | None = None
    """(states, A), bool: known once training has begun, of logs of states that say what was allowed."""

    def build(self) -> dict[str, nn.Module]:
        width, seeds, head = self.spec.action.width, self.config.seeds, self.factory.head
        critic = head(width * (1 + len(self.constraints.names)), seeds)
        return {"critic": critic, "policy": head(width, seeds, purpose=1), "behaviour": head(width, seeds, purpose=2)}

    def make_world(self) -> World:
        if self.spec.observation.kind == "states":
            return CountedWorld(self.spec, self.gamma)
        return GaussianWorld(self.config, self.factory, self.seeds)

    def begin(self, experience: LoggedExperience, update: int) -> None:
        super().begin(experience, update)
        if self._legal_of_states is None and self.spec.observation.kind == "states":
            self._legal_of_states = _legal_of_states(experience.log, experience.transitions)

    def legal(self, batch: AgentBatch) -> tuple[Tensor, Tensor]:
        everything = torch.ones((*batch.rewards.shape, self.spec.action.width), dtype=torch.bool)
        return (
            everything if batch.allowed is None else batch.allowed,
            everything if batch.next_allowed is None else batch.next_allowed,
        )

    def imagined_legal(self, observations: Tensor) -> Tensor:
        """Of states what was allowed where they were logged; of vectors all, since nobody knows."""
        if self._legal_of_states is None:
            return torch.ones((*observations.shape[:2], self.spec.action.width), dtype=torch.bool)
        return self._legal_of_states[observations]

    def act(self, observations: Tensor, legal: Tensor) -> Tensor:
        odds = self._log_policy(observations, legal).exp().cumsum(-1)
        return (self.uniform(observations.shape[1], 1) >= odds[..., :-1]).sum(-1)

    def _log_policy(self, observations: Tensor, legal: Tensor, network: str = "policy") -> Tensor:
        return torch.log_softmax(masked(self.networks[network](observations), legal), -1)

    def ood(self, observations: Tensor, actions: Tensor) -> Tensor:
        return self.guardian.of_actions(observations).gather(-1, actions[..., None]).squeeze(-1)

    def logged_ood(self, observations: Tensor, actions: Tensor) -> Tensor:
        return self.guardian.of_logged(observations, actions)

    def taken(self, network: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
        values = self._values(network, observations)
        index = actions[:, None, :, None, None].expand(-1, 1, -1, 1, values.shape[-1])
        return values.gather(-2, index).squeeze(-2)

    def _values(self, network: nn.Module, observations: Tensor) -> Tensor:
        """(S, 1, N, A, 1 + J)."""
        return network(observations).unflatten(-1, (self.spec.action.width, -1))[:, None]

    def expected(self, observations: Tensor, legal: Tensor) -> Tensor:
        policy = self._log_policy(observations, legal).exp()
        return torch.einsum("sna,snak->snk", policy, self._values(self.targets["critic"], observations)[:, 0])

    def policy_terms(self, steps: Steps, duals: Tensor) -> tuple[PolicyTerms, Tensor]:
        log_policy = self._log_policy(steps.observations, steps.legal)
        with torch.no_grad():
            clinician = self._log_policy(steps.observations, steps.legal, "behaviour")
            values = self._values(self.networks["critic"], steps.observations)[:, 0]
            spent = torch.einsum("sna,snaj->snj", log_policy.exp(), values[..., 1:])
        weight = self.config.clinician_weight
        return softmax_policy_loss(log_policy, clinician, values, duals, steps.weights, weight), spent

    def cloning(self, batch: AgentBatch) -> Objective:
        logits = self.networks["behaviour"](batch.observations)
        return Objective(("behaviour",), discrete_loss(logits, batch.actions, batch.allowed, 0.0))


def _legal_of_states(log: Transitions, transitions: np.ndarray) -> Tensor | None:
    """(states, A), bool: allowed in some training row of the state, all where there is none; None: the log says not."""
    if log.allowed is None:
        return None
    rows = log.rows(transitions)
    found = np.zeros((log.spec.observation.size, log.spec.action.width), bool)
    np.logical_or.at(found, log.observations[rows], log.allowed[rows, 0])
    found[~found.any(1)] = True
    return torch.from_numpy(found)
