"""Guarded learning of continuous actions: a deterministic policy along the critic's gradient."""

from __future__ import annotations

import torch
from refork.envs.forkable import BadInput
from refork.trainers.agent_batch import AgentBatch, to_unit
from refork.trainers.bc.loss import mean_loss
from refork.trainers.offline import Objective
from refork.trainers.ogsrl.gaussian_world import GaussianWorld
from refork.trainers.ogsrl.guarded import GuardedTrainer
from refork.trainers.ogsrl.loss import PolicyTerms, action_policy_loss, pessimistic
from refork.trainers.ogsrl.steps import Steps
from refork.trainers.ogsrl.world import World
from torch import Tensor, nn

SPREAD = 0.2
"""Deviation of the imagined actions from the policy's, in [-1, 1]^d: without, the critic has no slope to follow."""


class ContinuousTrainer(GuardedTrainer):
    """Actions are in [-1, 1]^d inside, the guardian sees them in their own units."""

    def build(self) -> dict[str, nn.Module]:
        width, seeds, head = self.spec.action.width, self.config.seeds, self.factory.head
        critic = head(1 + len(self.constraints.names), seeds, 2, extra=width)
        return {"critic": critic, "policy": head(width, seeds, purpose=1), "behaviour": head(width, seeds, purpose=2)}

    def make_world(self) -> World:
        if self.spec.observation.kind == "states":
            raise BadInput("trainer.kind: ogsrl learns continuous actions from logs of vectors, this one is of states")
        return GaussianWorld(self.config, self.factory, self.seeds)

    def legal(self, batch: AgentBatch) -> tuple[Tensor, Tensor]:
        nothing = self.imagined_legal(batch.observations)
        return nothing, nothing

    def imagined_legal(self, observations: Tensor) -> Tensor:
        return torch.ones((*observations.shape[:2], 0), dtype=torch.bool)

    def _action(self, observations: Tensor, network: str = "policy") -> Tensor:
        return torch.tanh(self.networks[network](observations))

    def act(self, observations: Tensor, legal: Tensor) -> Tensor:
        mean = self._action(observations)
        return (mean + SPREAD * self.normal(*mean.shape[1:])).clamp(-1.0, 1.0)

    def ood(self, observations: Tensor, actions: Tensor) -> Tensor:
        low, high = torch.tensor(self.spec.action.low), torch.tensor(self.spec.action.high)
        return self.guardian.of_pairs(observations, low + (actions + 1) / 2 * (high - low))

    def logged_ood(self, observations: Tensor, actions: Tensor) -> Tensor:
        return self.ood(observations, to_unit(actions, self.spec.action))

    def taken(self, network: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
        return _twins(network, observations, actions)

    def expected(self, observations: Tensor, legal: Tensor) -> Tensor:
        return pessimistic(_twins(self.targets["critic"], observations, self._action(observations)))

    def policy_terms(self, steps: Steps, duals: Tensor) -> tuple[PolicyTerms, Tensor]:
        actions = self._action(steps.observations)
        values = pessimistic(_twins(self.networks["critic"], steps.observations, actions))
        with torch.no_grad():
            clinician = self._action(steps.observations, "behaviour")
        weight = self.config.clinician_weight
        terms = action_policy_loss(actions, clinician, values, duals, steps.weights, weight)
        return terms, values[..., 1:].detach()

    def cloning(self, batch: AgentBatch) -> Objective:
        means = self.networks["behaviour"](batch.observations)
        return Objective(("behaviour",), mean_loss(means, batch.actions, 0.0))


def _twins(network: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
    """(S, N, ...) -> (S, 2, N, 1 + J)."""
    return network(observations.repeat_interleave(2, 0), actions.repeat_interleave(2, 0)).unflatten(0, (-1, 2))
