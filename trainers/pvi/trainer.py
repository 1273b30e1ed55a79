"""Pessimistic or shrunken value iteration on a counted model: the tabular baseline, and what shrinkage makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from refork.agents.q_networks import LogNetworks
from refork.envs.forkable import BadInput
from refork.replay.transitions import Transitions
from refork.trainers.offline import check_fits
from refork.trainers.pvi.config import AlgorithmConfig
from refork.trainers.pvi.counts import Counts, count, shrunk_values
from refork.trainers.pvi.shrinkage import choose_shrinkage
from refork.trainers.ranks import Alone, Ranks


class Trainer:
    """No networks: `agent.options` are not used."""

    def __init__(self, config: AlgorithmConfig, networks: LogNetworks, seed: int) -> None:
        check_fits(config, networks.spec)
        self.ranks: Ranks = Alone()
        """All of them plan alike."""
        self.gamma = networks.spec.gamma if config.gamma is None else config.gamma
        self.config = config
        self.q = np.zeros((networks.spec.observation.size, networks.spec.action.width))
        """(S, A)"""
        self.taken = np.ones(self.q.shape, bool)
        """(S, A): seen often enough, or all actions of a state where none was."""
        self._counted: tuple[Transitions, Counts, float] | None = None

    def weights(self) -> dict[str, np.ndarray]:
        """The same table for every seed."""
        table = np.where(self.taken, self.q, self.q.min() - 1.0).astype(np.float32)
        return {"q.table.rows": np.broadcast_to(table, (self.config.seeds, *table.shape)).copy()}

    def fork_config(self, update: int) -> None:
        """A log cannot be gone back in."""

    def update(self, update: int, experience: Sequence[Any]) -> dict[str, float]:
        """`steps_per_update` sweeps; `loss/q/total`: the largest change of a value in the last one."""
        (logged,) = experience
        if self._counted is None or self._counted[0] is not logged.log:
            self._counted = logged.log, *self._count(logged.log, logged.transitions)
        _, counts, shrinkage = self._counted
        penalty = self.config.penalty / np.sqrt(np.maximum(counts.seen + shrinkage, 1.0))
        often = counts.seen >= self.config.min_count
        self.taken = often | ~often.any(1, keepdims=True)
        change = 0.0
        for _ in range(self.config.steps_per_update):
            before = self.q
            values = np.where(self.taken, self.q, -np.inf).max(1)
            self.q = shrunk_values(counts, values, shrinkage, self.config.prior) - penalty
            change = float(np.abs(self.q - before).max())
        read = float(len(logged.transitions) * self.config.steps_per_update)
        return {"loss/q/total": change, "shrinkage": shrinkage, "steps": read}

    def _count(self, log: Transitions, transitions: np.ndarray) -> tuple[Counts, float]:
        config = self.config
        shrinkage = config.shrinkage
        if shrinkage is None:
            sweeps = config.updates * config.steps_per_update
            shrinkage = choose_shrinkage(log, transitions, self.gamma, config.prior, sweeps)
        return count(log, transitions, self.gamma), shrinkage

    def state_dict(self) -> dict[str, Any]:
        return {"q": torch.from_numpy(self.q.copy()), "taken": torch.from_numpy(self.taken.copy())}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInput when the number of states or actions differs."""
        q = state["q"].numpy()
        if q.shape != self.q.shape:
            raise BadInput(f"the checkpoint is of {q.shape[0]} states and {q.shape[1]} actions, the log has other ones")
        self.q, self.taken = q.copy(), state["taken"].numpy().copy()
