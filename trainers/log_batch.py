"""Minibatches of a log as tensors, for S stacked trainings at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import repeat

import numpy as np
import torch
from refork.replay.seeding import generator
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.ranks import Alone, Ranks, own_rows
from torch import Tensor

ALONE = Alone()
AT_ONCE = 2048
"""Transitions looked up together, of several small minibatches."""


@dataclass(frozen=True)
class Batch:
    """B transitions for each of S seeds."""

    observations: Tensor
    """(S, B, features) float32, of states (S, B) int64; with an observation per decision maker (S, B, n, ...)."""
    actions: Tensor
    """(S, B, n) int64; continuous (S, B, n, dimensions) float32."""
    rewards: Tensor
    """(S, B)"""
    next_observations: Tensor
    """As `observations`: what followed, also after a cut."""
    discounts: Tensor
    """(S, B): gamma^dt, 0 where the episode terminated; a cut one bootstraps."""
    allowed: Tensor | None
    """(S, B, n, width) bool, or None: all."""
    next_allowed: Tensor | None
    """(S, B, n, width) bool, or None: all."""
    transitions: Tensor
    """(S, B) int64: their numbers in the log."""
    next_rows: Tensor
    """(S, B) int64: rows of `next_observations` in the log."""
    both: Tensor
    """(S, 2 B, ...): `observations`, and behind them `next_observations`, which are parts of it."""

    def steps(self) -> Iterator[Batch]:
        """One after the other of several stacked in front."""
        parts = (getattr(self, f.name) for f in fields(self))
        apart = (repeat(None) if part is None else part.unbind(0) for part in parts)
        return (Batch(*row) for row in zip(*apart))  # noqa: B905  (what is None has no end)


class LogTensors:
    """The log's arrays as tensors over the same memory (mapped files stay on disk)."""

    def __init__(self, log: Transitions, gamma: float) -> None:
        self._gamma = gamma
        self.observations = torch.from_numpy(np.asarray(log.observations))
        self.actions = torch.from_numpy(np.asarray(log.actions))
        self.rewards = torch.from_numpy(np.asarray(log.rewards))
        self.terminated = torch.from_numpy(np.asarray(log.terminated))
        self.dt = torch.from_numpy(np.asarray(log.dt))
        self.episode = torch.from_numpy(log.episode)
        self.allowed = None if log.allowed is None else torch.from_numpy(np.asarray(log.allowed))

    def batch(self, transitions: Tensor) -> Batch:
        """The transitions with these numbers, (..., B) int64."""
        rows = transitions + self.episode[transitions]
        both, size = self._seen(torch.cat([rows, rows + 1], -1)), rows.shape[-1]
        axis = rows.ndim - 1
        return Batch(
            both.narrow(axis, 0, size),
            self.actions[transitions],
            self.rewards[transitions],
            both.narrow(axis, size, size),
            self._gamma ** self.dt[transitions] * ~self.terminated[transitions],
            None if self.allowed is None else self.allowed[rows],
            None if self.allowed is None else self.allowed[rows + 1],
            transitions,
            rows + 1,
            both,
        )

    def _seen(self, rows: Tensor) -> Tensor:
        found = self.observations.index_select(0, rows.flatten()).unflatten(0, rows.shape)
        return found if found.is_floating_point() else found.long()


class Minibatches:
    """The stream of minibatches: seed s of update u always sees the same ones, alone or stacked."""

    def __init__(self, seeds: Sequence[int], gamma: float) -> None:
        self._seeds, self._gamma = tuple(seeds), gamma
        self._tensors: tuple[Transitions, LogTensors] | None = None

    def tensors(self, log: Transitions) -> LogTensors:
        """Kept from update to update."""
        if self._tensors is None or self._tensors[0] is not log:
            self._tensors = log, LogTensors(log, self._gamma)
        return self._tensors[1]

    def draw(
        self, experience: LoggedExperience, update: int, steps: int, size: int, ranks: Ranks = ALONE
    ) -> Iterator[Batch]:
        """`steps` minibatches of `size` transitions a seed, drawn with replacement; of each what is this rank's own."""
        tensors = self.tensors(experience.log)
        draws = [generator(s, "minibatches", update) for s in self._seeds]
        chosen = [g.integers(len(experience.transitions), size=(steps, size)) for g in draws]
        numbers = torch.from_numpy(experience.transitions[np.stack(chosen, 1)])  # (steps, S, B)
        numbers = numbers if ranks.size == 1 else numbers[..., own_rows(ranks, size)]
        for some in numbers.split(max(1, AT_ONCE // numbers[0].numel())):
            yield from tensors.batch(some).steps()
