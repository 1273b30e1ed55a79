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
from refork.envs.forkable import BadInput
from refork.replay.games import ImproveConfig, PlayConfig, PlayedGames
from refork.replay.seeding import generator
from refork.trainers.loop import Diverged
from refork.trainers.pmd.advantages import RunningScale
from refork.trainers.pmd.batch import Judged, Part, minibatches
from refork.trainers.pmd.config import AlgorithmConfig
from refork.trainers.pmd.drift import Drift, drift
from refork.trainers.pmd.flat import FlatParameters
from refork.trainers.pmd.judge import OPERATORS, Batches, Judge
from refork.trainers.pmd.loss import Decisions, PolicyTerms, imitation, policy_loss, value_loss
from refork.trainers.pmd.penalty import Penalty
from refork.trainers.ranks import Alone, Ranks
from refork.trainers.schedule import Schedule
from torch import Tensor


class Trainer:
    """`config.update` chooses the objective, `config.baseline` the advantage."""

    def __init__(self, config: AlgorithmConfig, network: CrossGraph, seed: int) -> None:
        self.config, self.network, self._seed = config, network, seed
        self.ranks: Ranks = Alone()
        self.schedule, self.penalty = Schedule.of(config), Penalty(config)
        kind = "central" if config.update == "mappo" else config.baseline
        critic_seed = int(generator(seed, "critic").integers(2**31))
        self.critic = make_critic(kind, network, config.critic_width, critic_seed)
        self.scale = RunningScale(config.scale_rate)
        self.magnet = copy.deepcopy(network).requires_grad_(False) if self._pulled else None
        self.judge = Judge(config, network, self.critic, self.magnet, self.scale)
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

    def fork_config(self, update: int) -> PlayConfig:
        """Who plays, and how much is searched."""
        c, phase = self.config, self._phase(update)
        if phase == "clone":
            return PlayConfig(c.warm_heuristic)
        search = (
            ImproveConfig(c.improve_candidates, c.improve_states, c.improve_margin) if c.improve_candidates else None
        )
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
        stale = phase == "learn" and any(g.version < update for g in games)
        batches, metrics = self.judge(parts, self.config.staleness_cap if stale else None)
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

    # ---- gradient steps

    def _epochs(self, batches: Batches, phase: str, rng: np.random.Generator) -> dict[str, float]:
        rows = []
        for _ in range(self.config.epochs):
            for i in rng.permutation(len(batches)):
                rows.append(self._step(batches[i], phase))
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: float(np.mean([row[name] for row in rows])) for name in names}

    def _step(self, batch: Sequence[tuple[Part, Judged]], phase: str) -> dict[str, float]:
        """One gradient step on a minibatch, its parts weighted by their decisions and dealt out to the ranks."""
        for flat in self._flat.values():
            flat.gradient.zero_()
        total, row = sum(part.games * part.rounds for part, _ in batch), dict[str, float]()
        if len(batch) < self.ranks.size:  # all do all of it: the mean of equal gradients
            total *= self.ranks.size
        else:
            batch = batch[self.ranks.rank :: self.ranks.size]
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
        row = self._added(row)
        row |= self._clip_gradients()
        self.optimiser.step()
        return row

    def _added(self, row: dict[str, float]) -> dict[str, float]:
        """Of all ranks: gradients, and the terms."""
        if self.ranks.size == 1:
            return row
        found = torch.tensor(list(row.values()), dtype=torch.float64)
        self.ranks.add([*(flat.gradient for flat in self._flat.values()), found])
        return dict(zip(row, found.tolist(), strict=True))

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
            self.optimiser.load_state_dict(state["optimiser"])
        except (RuntimeError, ValueError) as error:
            raise BadInput(f"the checkpoint is of another network than the job's agent: {error}") from error
        self.scale.load_state_dict(state["scale"])
        self.penalty.load_state_dict(state["penalty"])
        self._kl_total, self._next = list(state["kl_total"]), state["next"]


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


def _count(parts: Sequence[Sequence[Part]]) -> int:
    return sum(part.games * part.rounds * 2 for batch in parts for part in batch)
