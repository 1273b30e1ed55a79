"""The joint between the policy's learner and the models of what follows; and which patients a model is judged on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.seeding import generator
from refork.replay.transitions import Transitions
from torch import Tensor

Noise = Callable[..., Tensor]
"""Sizes (B, ...) -> (S, B, ...), each seed from a stream of its own."""
HELD_OUT = 0.15
"""Share of the training part's patients that a model's error is measured on."""


@dataclass(frozen=True)
class Imagined:
    """What a model says followed B decisions of each of S seeds."""

    observations: Tensor
    """(S, B, ...): the next ones."""
    rewards: Tensor
    """(S, B)"""
    ended: Tensor
    """(S, B), bool"""
    dt: Tensor
    """(S, B): time to the next observation."""
    known: Tensor
    """(S, B), bool: whether the model knows anything of the situation."""


class World(Protocol):
    """A model of what follows. It is fitted on the transitions it is given and on nothing else."""

    @property
    def fitted(self) -> bool: ...

    def fit(self, log: Transitions, transitions: np.ndarray) -> dict[str, float]:
        """Fit it; its error on patients of the training part that it was not fitted on, beside a plain baseline's."""

    def step(self, observations: Tensor, actions: Tensor, uniform: Noise, normal: Noise) -> Imagined:
        """Draw what follows actions (S, B) int64, or (S, B, d) in [-1, 1]."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def thinned(transitions: np.ndarray, most: int) -> np.ndarray:
    """At most that many of them, evenly spaced: a log may be larger than memory."""
    if len(transitions) <= most:
        return transitions
    return transitions[np.linspace(0, len(transitions) - 1, most).astype(np.int64)]


def part_by_patient(log: Transitions, transitions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """These transitions in two: to fit, and to measure the error on other patients. Raises BadInput for one patient."""
    patients = log.patients[log.episode[transitions]]
    names = np.unique(patients)
    if len(names) < 2:
        raise BadInput("the training part has one patient; a model's error needs others: give more patients")
    generator(0, "model split").shuffle(names)
    held = np.isin(patients, names[: max(1, round(HELD_OUT * len(names)))])
    return transitions[~held], transitions[held]
