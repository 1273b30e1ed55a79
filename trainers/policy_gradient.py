"""What CRR, GRPO and their relatives do alike with experience: credit, batch, gradient steps, state.

An algorithm gives `credit` (advantages of one task group) and `loss` (terms from log-probabilities).
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from refork.agents.edit_scorer import EditScorer
from refork.envs.forkable import BadInput
from refork.replay.counterfactual import ForkConfig
from refork.replay.seeding import generator
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit
from refork.trainers.batch import Batch, make_batch
from refork.trainers.config import PolicyGradientConfig
from refork.trainers.ranks import Alone, Ranks, own_rows
from refork.trainers.schedule import Schedule
from refork.trainers.staleness import correction
from refork.trainers.surrogate import Clip, Penalty, Terms, chosen
from torch import Tensor


class PolicyGradientTrainer(ABC):
    """Adam on a clipped surrogate. Everything random comes from `seed` and the update's number."""

    divisible = True
    """The loss is a plain mean over decisions, so ranks can take some of them each."""

    def __init__(self, config: PolicyGradientConfig, network: EditScorer, seed: int) -> None:
        self.ranks: Ranks = Alone()
        self.config, self.network, self._seed = config, network, seed
        self.schedule = Schedule.of(config)
        self.clip = Clip(config.clip_low, config.clip_high, config.dual_clip)
        self.penalty = Penalty(config.kl, config.entropy_bonus)
        self.optimiser = torch.optim.Adam(network.parameters(), config.learning_rate)
        self.reference = copy.deepcopy(network).requires_grad_(False) if config.kl > 0 else None

    @abstractmethod
    def credit(self, experience: TaskExperience) -> Credit:
        """Advantages of one task group."""

    @abstractmethod
    def loss(self, batch: Batch, log_probs: Tensor, reference: Tensor | None) -> Terms:
        """Loss terms from log-probabilities (n, actions) under the network and, with a KL term, the reference."""

    def fork_config(self, update: int) -> ForkConfig | None:
        """No forks, unless the algorithm says so."""
        return None

    def adapt(self, counts: Mapping[str, int]) -> dict[str, float]:
        """Hook: adjust what is asked for next to what the last experience gave."""
        return {}

    def weights(self) -> dict[str, np.ndarray]:
        return self.network.acting_weights()

    def update(self, update: int, experience: Sequence[TaskExperience]) -> dict[str, float]:
        """One update. Without any advantage other than 0 the weights stay, and `skipped_update` is 1."""
        credits = [self.credit(group) for group in experience]
        counts: Counter[str] = Counter()
        for credit in credits:
            counts.update(credit.counts)
        rate = self.schedule.rate(update)
        metrics = {**{k: float(v) for k, v in counts.items()}, **self.adapt(counts), "learning_rate": rate}
        batch = make_batch(experience, credits)
        if batch is None:
            return {**metrics, "skipped_update": 1.0, "decisions": 0.0}
        metrics |= {"skipped_update": 0.0, "decisions": float(len(batch))}
        batch = self._scaled(batch)
        if any(group.version < update for group in experience):
            batch, stale = self._corrected(batch)
            metrics |= stale
        return metrics | self._optimise(batch, rate, update)

    def _scaled(self, batch: Batch) -> Batch:
        spread = batch.advantages.std(correction=0) if len(batch) > 1 else torch.tensor(0.0)
        if self.config.advantage_scale == "none" or float(spread) < 1e-8:
            return batch
        return replace(batch, advantages=batch.advantages / spread)

    @torch.no_grad()
    def _corrected(self, batch: Batch) -> tuple[Batch, dict[str, float]]:
        """As if the policy of now had acted, by importance weights."""
        now = chosen(self.network(batch.features, batch.mask), batch.actions)
        found = correction(now, batch.log_probs, self.config.staleness_cap)
        return replace(batch, log_probs=now, advantages=found.weights * batch.advantages), found.metrics()

    def _optimise(self, batch: Batch, rate: float, update: int) -> dict[str, float]:
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        rows = []
        for part in self._minibatches(batch, update):
            row = self._derive(part)
            norm = torch.nn.utils.clip_grad_norm_(
                self.network.parameters(), self.config.max_grad_norm, error_if_nonfinite=True
            )
            self.optimiser.step()
            rows.append({**row, "grad_norm": float(norm)})
        return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}

    def _derive(self, part: Batch) -> dict[str, float]:
        """Write the gradients of a minibatch, of which every rank computes its share; the loss terms by name."""
        if self.divisible and len(part) >= self.ranks.size:
            seen = part.take(own_rows(self.ranks, len(part)))
            share = len(seen) / len(part)
        else:  # all do all of it: the mean of equal gradients
            seen, share = part, 1 / self.ranks.size
        log_probs = self.network(seen.features, seen.mask)
        reference = None if self.reference is None else self.reference(seen.features, seen.mask)
        terms = self.loss(seen, log_probs, reference)
        self.optimiser.zero_grad()
        (share * terms.total).backward()
        found = torch.stack([share * value.detach() for value in vars(terms).values()])
        self.ranks.add([*(p.grad for p in self.network.parameters() if p.grad is not None), found])
        return {f"loss/{name}": value for name, value in zip(vars(terms), found.tolist(), strict=True)}

    def _minibatches(self, batch: Batch, update: int) -> Iterator[Batch]:
        rng = generator(self._seed, "minibatches", update)
        size = self.config.minibatch or len(batch)
        for _ in range(self.config.epochs):
            order = torch.from_numpy(rng.permutation(len(batch)))
            yield from (batch.take(rows) for rows in order.split(size))

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "reference": None if self.reference is None else self.reference.state_dict(),
            "schedule": self.schedule.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInput when the schedule or the network's shape differs."""
        self.schedule.check(state["schedule"])
        try:
            self.network.load_state_dict(state["network"])
        except RuntimeError as error:
            raise BadInput(f"the checkpoint is of another network than the job's agent: {error}") from error
        self.optimiser.load_state_dict(state["optimiser"])
        if self.reference is not None and state["reference"] is not None:
            self.reference.load_state_dict(state["reference"])
