"""Guarded learning from logs, whatever the actions: model, guardian and costs are fitted, experience is imagined, and
the multipliers of the costs follow what the policy spends.

The model only makes experience for the critic. What the policy is worth has to be judged elsewhere, in a simulator or
by off-policy evaluation: the model is not among the exported weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from refork.agents.density import density_of
from refork.agents.q_networks import LogNetworks
from refork.envs.forkable import BadInput
from refork.replay.support import costs as logged_costs
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.agent_batch import AgentBatch, by_agent
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.constraints import Constraints
from refork.trainers.ogsrl.guardian import Guardian
from refork.trainers.ogsrl.loss import PolicyTerms, critic_loss, targets
from refork.trainers.ogsrl.safety import discounted_shares
from refork.trainers.ogsrl.steps import Steps, joined
from refork.trainers.ogsrl.world import World
from torch import Tensor

MEASURED = 50_000
"""Most logged decisions that the clinicians' own costs are measured on."""


class GuardedTrainer(OfflineTrainer[AlgorithmConfig]):
    """What the trainers for discrete and for continuous actions share."""

    targeted = ("critic",)

    def __init__(self, config: AlgorithmConfig, networks: LogNetworks, seed: int) -> None:
        if networks.spec.observation.per_agent:
            raise BadInput("trainer.kind: ogsrl learns from one observation, this log has one per decision maker")
        self.constraints = Constraints(config, networks.shape)
        super().__init__(config, networks, seed)
        self.guardian = Guardian.blank(networks.spec)
        self.world: World = self.make_world()
        self._return_scale = 1.0
        self._report: dict[str, float] = {}

    @abstractmethod
    def make_world(self) -> World:
        """A model that is not yet fitted."""

    @abstractmethod
    def legal(self, batch: AgentBatch) -> tuple[Tensor, Tensor]:
        """Masks of a minibatch now and next (S, B, A), (S, B, 0) of continuous actions."""

    @abstractmethod
    def imagined_legal(self, observations: Tensor) -> Tensor:
        """The same of imagined observations."""

    @abstractmethod
    def act(self, observations: Tensor, legal: Tensor) -> Tensor:
        """Actions drawn from the policy."""

    @abstractmethod
    def ood(self, observations: Tensor, actions: Tensor) -> Tensor:
        """(S, N): the guardian's cost of the actions."""

    @abstractmethod
    def logged_ood(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The same of actions as they were logged."""

    @abstractmethod
    def taken(self, network: torch.nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
        """Values of the actions by each critic, (S, critics, N, 1 + J)."""

    @abstractmethod
    def expected(self, observations: Tensor, legal: Tensor) -> Tensor:
        """Values of the policy by the target networks, (S, N, 1 + J)."""

    @abstractmethod
    def policy_terms(self, steps: Steps, duals: Tensor) -> tuple[PolicyTerms, Tensor]:
        """The policy's loss, and the costs' values under it (S, N, J)."""

    @abstractmethod
    def cloning(self, batch: AgentBatch) -> Objective:
        """The clinicians' policy is cloned beside."""

    def begin(self, experience: LoggedExperience, update: int) -> None:
        """Once, from the training transitions alone: guardian, model, budgets, size of returns."""
        self.constraints.begin()
        if self.world.fitted:
            return
        log, transitions = experience.log, np.sort(experience.transitions)
        self.guardian = Guardian.fit(self.config, log, transitions)
        self._report = self.world.fit(log, transitions)
        self._return_scale = _return_scale(log, transitions, self.gamma)
        self.constraints.set_budgets(self._own_costs(log, transitions[-MEASURED:]))

    def _own_costs(self, log: Transitions, transitions: np.ndarray) -> np.ndarray:
        """(J,): what the logged decisions led to, in the unit of the budgets."""
        seen = torch.from_numpy(np.asarray(log.observations[log.rows(transitions)]))[None]
        actions = torch.from_numpy(np.asarray(log.actions[transitions, 0]))[None]
        outside = self.logged_ood(seen if seen.is_floating_point() else seen.long(), actions)[0].numpy()
        safety = [logged_costs(log, limit, transitions) for limit in self.constraints.limits]
        return discounted_shares(log, transitions, np.stack([outside, *safety], 1), self.constraints.discount)

    def losses(self, batch: Batch) -> Sequence[Objective]:
        mine = by_agent(batch, self.spec)
        logged = self._logged(mine)
        steps = joined([logged, *self._imagine(logged)])
        policy, spent = self.policy_terms(steps, self.constraints.effective)
        self.constraints.follow(self._mean(spent[:, : logged.weights.shape[1]]))
        values = self.taken(self.networks["critic"], steps.observations, steps.actions)
        learnt = critic_loss(values, self._targets(steps), steps.weights)
        seen = steps.weights.sum(1)
        return [
            Objective(("critic",), learnt, weight=seen),
            Objective(("policy",), policy, weight=seen),
            self.cloning(mine),
        ]

    def _mean(self, values: Tensor) -> Tensor:
        """(S, rows of this rank, J) -> (S, J), over the rows of all ranks."""
        if self.ranks.size == 1:
            return values.mean(1)
        total = values.sum(1) / self.config.batch
        self.ranks.add([total])
        return total

    def _logged(self, batch: AgentBatch) -> Steps:
        legal, next_legal = self.legal(batch)
        return Steps(
            batch.observations,
            batch.actions,
            batch.rewards,
            batch.next_observations,
            batch.discounts,
            self._costs(batch.observations, batch.actions, batch.next_observations),
            legal,
            next_legal,
            torch.ones_like(batch.rewards),
        )

    @torch.no_grad()
    def _imagine(self, logged: Steps) -> list[Steps]:
        """What the policy would do from the logged states on, as the model has it."""
        found: list[Steps] = []
        seen, legal, weights = logged.observations, logged.legal, logged.weights
        for _ in range(self.config.rollout):
            actions = self.act(seen, legal)
            led = self.world.step(seen, actions, self.uniform, self.normal)
            discounts = self.gamma**led.dt * ~led.ended
            next_legal = self.imagined_legal(led.observations)
            costs = self._costs(seen, actions, led.observations)
            weights = weights * led.known
            found.append(
                Steps(seen, actions, led.rewards, led.observations, discounts, costs, legal, next_legal, weights)
            )
            seen, legal, weights = led.observations, next_legal, weights * ~led.ended
        return found

    def _costs(self, observations: Tensor, actions: Tensor, led: Tensor) -> Tensor:
        """(S, N, J), each >= 0: a policy that spends more is worth less."""
        return torch.cat([self.ood(observations, actions)[..., None], self.constraints.safety.of(led)], -1)

    @torch.no_grad()
    def _targets(self, steps: Steps) -> Tensor:
        following = self.expected(steps.next_observations, steps.next_legal)
        following = torch.cat([following[..., :1], following[..., 1:].clamp(0.0, 1.0)], -1)
        discount, rewards = self.constraints.discount, steps.rewards / self._return_scale
        ahead = discount * (steps.discounts > 0)
        return targets(rewards, steps.discounts, steps.costs, following, ahead, discount)

    def update(self, update: int, experience: Sequence[Any]) -> dict[str, float]:
        """As every trainer of logs; with the costs spent, their budgets and multipliers, and the model's error."""
        row = super().update(update, experience)
        return row | self._report | self.constraints.metrics(self.config.steps_per_update)

    def weights(self) -> dict[str, np.ndarray]:
        """The acting policy, the cloned clinicians and the guardian; never the model."""
        acts = "logits" if self.spec.action.kind == "discrete" else "action"
        policy, behaviour = self.networks["policy"], self.networks["behaviour"]
        arrays: dict[str, np.ndarray] = policy.acting_arrays(acts) | behaviour.acting_arrays("behaviour")  # type: ignore[operator]
        return arrays | {f"guardian.{name}": array for name, array in self.guardian.density.arrays().items()}

    def state_dict(self) -> dict[str, Any]:
        guardian = self.guardian.density.arrays()
        return super().state_dict() | {
            "world": self.world.state_dict(),
            "guardian": {name: torch.from_numpy(array.copy()) for name, array in guardian.items()},
            "constraints": self.constraints.state_dict(),
            "return_scale": self._return_scale,
            "report": self._report,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the base says; raises BadInput as well for other limits or members, or what another version wrote."""
        super().load_state_dict(state)
        try:
            self.world.load_state_dict(state["world"])
            self.guardian = Guardian(density_of({name: tensor.numpy() for name, tensor in state["guardian"].items()}))
            self.constraints.load_state_dict(state["constraints"])
            self._return_scale, self._report = state["return_scale"], state["report"]
        except (KeyError, TypeError, RuntimeError) as error:
            raise BadInput(f"the checkpoint is of another version or other settings of ogsrl: {error}") from error


def _return_scale(log: Transitions, transitions: np.ndarray, gamma: float) -> float:
    """Standard deviation of the episodes' returns in the training part; 1 where all are equal."""
    spread = float(log.returns(gamma)[np.unique(log.episode[transitions])].std())
    return spread if spread > 1e-6 else 1.0
