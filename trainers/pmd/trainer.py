"""Policy mirror descent and its rivals on coupled games: one loop of epochs, five objectives.

The policy of an iteration's start stays frozen through all its epochs. Everything random comes from the seed and the
update's number; everything that changes is in the state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_critic import CounterfactualCritic, make_critic
from refork.envs.forkable import BadInput, InfraFailure
from refork.replay.games import ImproveConfig, PlayConfig, PlayedGames
from refork.replay.seeding import generator
from refork.trainers.pmd.advantages import RunningScale, counterfactual_baseline, gae
from refork.trainers.pmd.batch import Judged, Part, minibatches
from refork.trainers.pmd.config import AlgorithmConfig
from refork.trainers.pmd.drift import Drift, drift
from refork.trainers.pmd.flat import FlatParameters
from refork.trainers.pmd.loss import Decisions, PolicyTerms, imitation, policy_loss, uniform, value_loss
from refork.trainers.pmd.penalty import Penalty
from refork.trainers.schedule import Schedule
from torch import Tensor

OPERATORS = ("demand", "supply")


class Diverged(InfraFailure):
    """Training went to infinity; the message says where and what helps."""


Batches = list[list[tuple[Part, Judged]]]


class Trainer:
    """`config.update` chooses the objective, `config.baseline` the advantage."""

    def __init__(self, config: AlgorithmConfig, network: CrossGraph, seed: int) -> None:
        self.config, self.network, self._seed = config, network, seed
        self.schedule, self.penalty = Schedule.of(config), Penalty(config)
        kind = "central" if config.update == "mappo" else config.baseline
        critic_seed = int(generator(seed, "critic").integers(2**31))
        self.critic = make_critic(kind, network, config.critic_width, critic_seed)
        self.scale = RunningScale(config.scale_rate)
        self.magnet = copy.deepcopy(network).requires_grad_(False) if self._pulled else None
        self._flat = {name: FlatParameters(network.policies[a]) for a, name in enumerate(OPERATORS)}
        self._flat["critic"] = FlatParameters(self.critic)
        groups = [
            {"params": [self._flat[name].vector for name in OPERATORS]},
            {"params": [self._flat["critic"].vector]},
        ]
        self.optimiser = torch.optim.Adam(groups, fused=True)
        self._next = 0
        """Number of the update to come."""
        self._kl_total = [0.0, 0.0]
        """Running sum of KL(new || old) per operator."""

    @property
    def _pulled(self) -> bool:
        return self.config.tau > 0 and self.config.magnet != "uniform"

    def weights(self) -> dict[str, np.ndarray]:
        return self.network.acting_weights()

    def _phase(self, update: int) -> str:
        if update < self.config.warm_updates:
            return "clone"
        return "critic" if update < self.config.warm_updates + self.config.critic_updates else "learn"

    def fork_config(self) -> PlayConfig:
        """Who plays next, and how much is searched."""
        c, phase = self.config, self._phase(self._next)
        if phase == "clone":
            return PlayConfig(c.warm_heuristic)
        search = ImproveConfig(c.improve_candidates, c.improve_states) if c.improve_candidates else None
        return PlayConfig(improve=search if phase == "learn" else None)

    def update(self, update: int, experience: Sequence[Any]) -> dict[str, float]:
        """One iteration on the games in `experience`; anything else there (lost games) is left out.

        Without any game the weights stay, and `skipped_update` is 1. Raises BadInput when the games were not played by
        whom this update expects.
        """
        self._next = update + 1
        games = [g for g in experience if isinstance(g, PlayedGames)]
        phase, rate = self._phase(update), self.schedule.rate(update)
        if not games:
            return {"skipped_update": 1.0, "learning_rate": rate}
        self._check_players(games, phase)
        self._begin_learning(update)
        rng = generator(self._seed, "minibatches", update)
        parts = minibatches(games, self.config.minibatch, self.network.heads, rng)
        batches, metrics = self._judge(parts)
        self._set_rates(rate, phase)
        metrics |= {"skipped_update": 0.0, "learning_rate": rate, "decisions": float(_count(parts))}
        metrics |= self._epochs(batches, phase, rng)
        return metrics | self._end(batches, phase)

    def _check_players(self, games: Sequence[PlayedGames], phase: str) -> None:
        expected = self.config.warm_heuristic if phase == "clone" else "policy"
        for batch in games:
            if batch.behaviour != expected:
                raise BadInput(f"games of {batch.tasks[0]}: played by {batch.behaviour}, this update needs {expected}")

    def _begin_learning(self, update: int) -> None:
        """The magnet is the policy that learning begins with."""
        if self.magnet is not None and update == self.config.warm_updates + self.config.critic_updates:
            self.magnet.load_state_dict(self.network.state_dict())

    def _set_rates(self, rate: float, phase: str) -> None:
        """A policy that is not learning must not coast on Adam's momentum."""
        policies, critics = self.optimiser.param_groups
        policies["lr"] = 0.0 if phase == "critic" else rate
        critics["lr"] = self.config.critic_learning_rate * rate / self.config.learning_rate

    # ---- what the frozen networks say

    @torch.no_grad()
    def _judge(self, parts: Sequence[Sequence[Part]]) -> tuple[Batches, dict[str, float]]:
        """Old log-probabilities, normalised advantages and value targets of every part."""
        if self.scale.unset:
            self.scale.update(torch.cat([_returns(part) for batch in parts for part in batch]))
        batches = [[(part, self._judge_part(part)) for part in batch] for batch in parts]
        judged = [j for batch in batches for _, j in batch]
        targets, advantages = (torch.cat([getattr(j, n) for j in judged]) for n in ("targets", "advantages"))
        metrics = {f"return/{name}": float(targets[:, a].mean()) for a, name in enumerate(OPERATORS)}
        metrics["behaviour_gap"] = max(_behaviour_gap(p, j) for batch in batches for p, j in batch)
        self.scale.update(targets)
        mean, spread = advantages.mean(0), advantages.std(0, correction=0).clamp(min=1e-8)
        for j in judged:
            j.advantages, j.targets = (j.advantages - mean) / spread, self.scale.normalise(j.targets)
        return batches, metrics

    def _judge_part(self, part: Part) -> Judged:
        old = self.network(part.features, part.wiring, part.masks)
        critic = self.critic
        if isinstance(critic, CounterfactualCritic):
            found = self._counterfactual(part, old, critic(part.features, part.wiring, part.actions))
        else:
            values = self.scale.restore(critic(part.features, part.wiring)).view(part.rewards.shape)
            found = gae(part.rewards, values, self.config.gae_lambda)
        return Judged(old, found[0].reshape(-1, 2), found[1].reshape(-1, 2), self._magnet_log_probs(part))

    def _counterfactual(
        self, part: Part, old: tuple[Tensor, Tensor], q: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Advantages, and TD(lambda) targets of Q along the moves that were made.

        COMA's advantage begins with Q of the move; the target it is fitted to takes its place, so that a Q not yet
        learned misleads no policy.
        """
        taken = torch.cat([q[a].gather(1, part.actions[:, a : a + 1]) for a in range(2)], 1)
        targets = gae(part.rewards, self.scale.restore(taken).view(part.rewards.shape), self.config.gae_lambda)[1]
        baseline = torch.stack([counterfactual_baseline(q[a], old[a]) for a in range(2)], 1)
        return targets.reshape(-1, 2) - self.scale.restore(baseline), targets

    def _magnet_log_probs(self, part: Part) -> tuple[Tensor, Tensor] | None:
        if self.config.tau == 0:
            return None
        if self.magnet is None:
            return uniform(part.masks[0]), uniform(part.masks[1])
        return self.magnet(part.features, part.wiring, part.masks)

    # ---- gradient steps

    def _epochs(self, batches: Batches, phase: str, rng: np.random.Generator) -> dict[str, float]:
        rows = []
        for _ in range(self.config.epochs):
            for i in rng.permutation(len(batches)):
                rows.append(self._step(batches[i], phase))
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: float(np.mean([row[name] for row in rows])) for name in names}

    def _step(self, batch: Sequence[tuple[Part, Judged]], phase: str) -> dict[str, float]:
        """One gradient step on a minibatch, its parts weighted by their decisions."""
        for flat in self._flat.values():
            flat.gradient.zero_()
        total, row = sum(part.games * part.rounds for part, _ in batch), dict[str, float]()
        for part, judged in batch:
            weight = part.games * part.rounds / total
            terms = {"loss/value": value_loss(self._values(part), judged.targets)}
            loss = terms["loss/value"]
            for name, found in self._policy_terms(part, judged, phase).items():
                loss = loss + found.total
                terms |= {f"loss/{name}/{key}": value for key, value in vars(found).items()}
            (weight * loss).backward()
            for key, value in terms.items():
                row[key] = row.get(key, 0.0) + weight * float(value.detach())
        row |= self._clip_gradients()
        self.optimiser.step()
        return row

    def _values(self, part: Part) -> Tensor:
        """What is fitted to the targets: (R, 2)."""
        if not isinstance(self.critic, CounterfactualCritic):
            return self.critic(part.features, part.wiring)
        q = self.critic(part.features, part.wiring, part.actions)
        return torch.cat([q[a].gather(1, part.actions[:, a : a + 1]) for a in range(2)], 1)

    def _policy_terms(self, part: Part, judged: Judged, phase: str) -> dict[str, PolicyTerms]:
        if phase == "critic":
            return {}
        new = self.network(part.features, part.wiring, part.masks)
        if phase == "clone":
            return {name: _clone_terms(new[a], part.actions[:, a]) for a, name in enumerate(OPERATORS)}
        return {
            name: policy_loss(new[a], _decisions(part, judged, a), self.penalty.objective(a))
            for a, name in enumerate(OPERATORS)
        }

    def _clip_gradients(self) -> dict[str, float]:
        """Each operator's policy, and the critic, by a norm of its own."""
        norms = {name: flat.clip(self.config.max_grad_norm) for name, flat in self._flat.items()}
        for name, norm in norms.items():
            if not math.isfinite(norm):
                raise Diverged(
                    f"update {self._next - 1}: the gradient of {name} is {norm}; "
                    "lower trainer.learning_rate or trainer.eta, or use fewer epochs"
                )
        return {f"grad_norm/{name}": norm for name, norm in norms.items()}

    # ---- after the epochs

    def _end(self, batches: Batches, phase: str) -> dict[str, float]:
        metrics: dict[str, float] = {}
        drifts = self._drift(batches)
        for a, name in enumerate(OPERATORS):
            self._kl_total[a] += drifts[a].kl if phase == "learn" else 0.0
            metrics |= {f"drift/{name}/{key}": value for key, value in vars(drifts[a]).items()}
            metrics |= {f"drift/{name}/kl_total": self._kl_total[a], f"eta/{name}": self.penalty.eta(a)}
        if phase == "learn":
            self.penalty.adapt(drifts)
            self._move_magnet()
        return metrics

    @torch.no_grad()
    def _drift(self, batches: Batches) -> list[Drift]:
        flat = [pair for batch in batches for pair in batch]
        new = [self.network(part.features, part.wiring, part.masks) for part, _ in flat]
        return [
            drift(
                [n[a] for n in new],
                [judged.old[a] for _, judged in flat],
                [part.masks[a] for part, _ in flat],
                [part.actions[:, a] for part, _ in flat],
            )
            for a in range(2)
        ]

    @torch.no_grad()
    def _move_magnet(self) -> None:
        if self.magnet is not None and self.config.magnet == "moving":
            for kept, now in zip(self.magnet.parameters(), self.network.parameters(), strict=True):
                kept.lerp_(now, self.config.magnet_rate)

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "magnet": None if self.magnet is None else self.magnet.state_dict(),
            "scale": self.scale.state_dict(),
            "penalty": self.penalty.state_dict(),
            "schedule": self.schedule.state_dict(),
            "kl_total": list(self._kl_total),
            "next": self._next,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInput when the schedule or a network's shape differs."""
        self.schedule.check(state["schedule"])
        try:
            self.network.load_state_dict(state["network"])
            self.critic.load_state_dict(state["critic"])
            if self.magnet is not None:
                self.magnet.load_state_dict(state["magnet"] or state["network"])
        except RuntimeError as error:
            raise BadInput(f"the checkpoint is of another network than the job's agent: {error}") from error
        self.optimiser.load_state_dict(state["optimiser"])
        self.scale.load_state_dict(state["scale"])
        self.penalty.load_state_dict(state["penalty"])
        self._kl_total, self._next = list(state["kl_total"]), state["next"]


def _returns(part: Part) -> Tensor:
    """(R, 2): sum of the rewards from a round on."""
    return part.rewards.flip(0).cumsum(0).flip(0).reshape(-1, 2)


def _decisions(part: Part, judged: Judged, a: int) -> Decisions:
    return Decisions(
        part.masks[a],
        part.actions[:, a],
        judged.old[a],
        judged.advantages[:, a],
        None if judged.magnet is None else judged.magnet[a],
        None if part.teacher is None else part.teacher[:, a],
    )


def _clone_terms(log_probs: Tensor, moves: Tensor) -> PolicyTerms:
    zero, distil = torch.zeros(()), imitation(log_probs, moves)
    return PolicyTerms(distil, zero, zero, zero, zero, distil)


def _behaviour_gap(part: Part, judged: Judged) -> float:
    """Largest difference between log-probabilities as played and as computed now; 0 up to rounding, or a fault."""
    if not bool(part.behaviour.any()):  # a heuristic played
        return 0.0
    now = torch.cat([judged.old[a].gather(1, part.actions[:, a : a + 1]) for a in range(2)], 1)
    return float((now - part.behaviour).abs().max())


def _count(parts: Sequence[Sequence[Part]]) -> int:
    return sum(part.games * part.rounds * 2 for batch in parts for part in batch)
