"""A model of logs of vectors: an ensemble of networks that give a Gaussian over the change of the observation.

Each member of each seed is fitted on minibatches of its own and keeps the pass of its least held-out loss; what follows
is drawn from a member drawn at random, and stays within what was logged of each feature.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from refork.agents.q_networks import LogNetworks
from refork.replay.seeding import generator
from refork.replay.transitions import Transitions
from refork.trainers.agent_batch import to_unit
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.loss import ModelTerms, model_loss, model_outputs
from refork.trainers.ogsrl.world import Imagined, Noise, part_by_patient, thinned
from torch import Tensor
from torch.nn import functional

PURPOSE = 71
"""Tells its networks' first weights from the critic's."""
LEAST_BATCH = 64
"""Transitions of a minibatch, where the trainer's are smaller."""
JUDGED = 20_000
"""Most held-out transitions that a pass is judged on."""
MEASURED = 500_000
"""Most transitions that bounds and means are measured on."""


class GaussianWorld:
    """`members` networks for each of S seeds."""

    def __init__(self, config: AlgorithmConfig, networks: LogNetworks, seeds: Sequence[int]) -> None:
        self._config, self._spec, self._seeds = config, networks.spec, tuple(seeds)
        action, self._features = networks.spec.action, networks.spec.observation.size
        out = 2 * self._features + 2
        self._head = networks.head(out, len(seeds), config.members, action.width, PURPOSE)
        self._scale = torch.from_numpy(networks.shape.scale)
        self._bounds = torch.zeros(2, self._features)
        self._reward = torch.tensor([0.0, 1.0])
        """Mean and standard deviation."""
        self._dt = torch.tensor(1.0)
        self.fitted = False

    def fit(self, log: Transitions, transitions: np.ndarray) -> dict[str, float]:
        """Errors of the next observation are in standard deviations of its features."""
        shown, held = part_by_patient(log, transitions)
        self._measure(log, shown)
        held = thinned(held, JUDGED)
        least = self._passes(log, shown, held)
        self.fitted = True
        out, change, _rewards, _ended = self._asked(log, self._all(held))
        error = (model_outputs(out)[0] - change).square().mean((1, 2)).sqrt()
        return {
            "model/heldout_loss": float(least.mean()),
            "model/heldout_rmse": float(error.detach().mean()),
            "model/heldout_rmse_of_no_change": float(change.square().mean().sqrt()),
        }

    def _measure(self, log: Transitions, shown: np.ndarray) -> None:
        shown = thinned(shown, MEASURED)
        rows = log.rows(shown)
        parts = [np.asarray(log.observations[r]) for r in (rows, rows + 1)]
        bounds = [np.minimum(*(p.min(0) for p in parts)), np.maximum(*(p.max(0) for p in parts))]
        self._bounds = torch.from_numpy(np.stack(bounds))
        rewards = np.asarray(log.rewards[shown], np.float64)
        self._reward = torch.tensor([rewards.mean(), max(rewards.std(), 1e-6)], dtype=torch.float32)
        self._dt = torch.tensor(float(np.mean(log.dt[shown])))

    def _passes(self, log: Transitions, shown: np.ndarray, held: np.ndarray) -> Tensor:
        """(K,): the least held-out loss of every member; its weights are kept."""
        optimiser = torch.optim.Adam(self._head.parameters(), lr=self._config.model_rate, fused=True)
        least = torch.full((self._head_members,), torch.inf)
        best = copy.deepcopy(list(self._head.parameters()))
        for turn in range(self._config.model_epochs):
            for chosen in self._minibatches(shown, turn):
                optimiser.zero_grad(set_to_none=True)
                self._terms(log, chosen).total.sum().backward()
                optimiser.step()
            with torch.no_grad():
                now = self._terms(log, self._all(held)).total
                better = now < least
                for kept, parameter in zip(best, self._head.parameters(), strict=True):
                    kept[better] = parameter[better]
                least = torch.where(better, now, least)
        with torch.no_grad():
            for kept, parameter in zip(best, self._head.parameters(), strict=True):
                parameter.copy_(kept)
        return least

    @property
    def _head_members(self) -> int:
        return len(self._seeds) * self._config.members

    def _minibatches(self, shown: np.ndarray, turn: int) -> list[np.ndarray]:
        """(K, B) numbers of transitions each: a pass in an order of its own for every member."""
        orders = np.stack(
            [
                generator(seed, "model minibatches", turn, member).permutation(shown)
                for seed in self._seeds
                for member in range(self._config.members)
            ]
        )
        size = min(max(self._config.batch, LEAST_BATCH), len(shown))
        return [orders[:, i : i + size] for i in range(0, len(shown) - size + 1, size)]

    def _all(self, transitions: np.ndarray) -> np.ndarray:
        return np.broadcast_to(transitions, (self._head_members, len(transitions)))

    def _terms(self, log: Transitions, chosen: np.ndarray) -> ModelTerms:
        out, change, rewards, ended = self._asked(log, chosen)
        return model_loss(out, change, rewards, ended)

    def _asked(self, log: Transitions, chosen: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(K, B) transitions -> what the members say, and the change, reward and end that were."""
        rows = log.rows(chosen)
        seen, led = (torch.from_numpy(np.asarray(log.observations[r])) for r in (rows, rows + 1))
        actions = torch.from_numpy(np.asarray(log.actions[chosen]))[..., 0, :] if self._continuous else None
        taken = to_unit(actions, self._spec.action) if actions is not None else torch.from_numpy(log.actions[chosen, 0])
        rewards = (torch.from_numpy(np.asarray(log.rewards[chosen])) - self._reward[0]) / self._reward[1]
        ended = torch.from_numpy(np.asarray(log.terminated[chosen])).float()
        return self._head(seen, self._extra(taken)), (led - seen) / self._scale, rewards, ended

    @property
    def _continuous(self) -> bool:
        return self._spec.action.kind == "continuous"

    def _extra(self, actions: Tensor) -> Tensor:
        return actions if self._continuous else functional.one_hot(actions, self._spec.action.width).float()

    @torch.no_grad()
    def step(self, observations: Tensor, actions: Tensor, uniform: Noise, normal: Noise) -> Imagined:
        """One member a decision; the reward is its mean, the end is drawn."""
        size, members = observations.shape[1], self._config.members
        out = self._head(observations.repeat_interleave(members, 0), self._extra(actions).repeat_interleave(members, 0))
        out = out.view(len(self._seeds), members, size, -1).transpose(1, 2)  # (S, B, members, out)
        noise = uniform(size, 2)
        member = (noise[..., 0] * members).long()[..., None, None].expand(-1, -1, 1, out.shape[-1])
        mean, log_std, reward, end = model_outputs(out.gather(2, member)[:, :, 0])
        led = observations + self._scale * (mean + log_std.exp() * normal(size, self._features))
        led = torch.minimum(torch.maximum(led, self._bounds[0]), self._bounds[1])
        ended = noise[..., 1] < torch.sigmoid(end)
        rewards = reward * self._reward[1] + self._reward[0]
        return Imagined(led, rewards, ended, self._dt.expand_as(rewards), torch.ones_like(ended))

    def state_dict(self) -> dict[str, Any]:
        tensors = {"bounds": self._bounds, "reward": self._reward, "dt": self._dt}
        return {"head": self._head.state_dict(), "fitted": self.fitted, **tensors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._head.load_state_dict(state["head"])
        self.fitted, self._bounds, self._reward, self._dt = (state[k] for k in ("fitted", "bounds", "reward", "dt"))
