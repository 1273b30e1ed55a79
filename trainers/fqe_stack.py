"""The stack of networks that fitted Q evaluation trains: a member for every policy and fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from refork.agents.q_networks import Head, LogNetworks, LogShape
from refork.envs.log_spec import Act, ObservationSpec
from refork.trainers.fqe_problem import Problem
from torch import Tensor

SAMPLES = 4
"""Joint actions drawn from a policy at each observation where they cannot be listed."""


@dataclass(frozen=True)
class NetworkSettings:
    """Of the regression."""

    hidden: tuple[int, ...] = (64, 64)
    steps: int = 1200
    """Gradient steps."""
    batch: int = 256
    learning_rate: float = 1e-3
    """At first; falls to 0 along a cosine."""
    weight_decay: float = 0.1
    """Of AdamW."""
    target_rate: float = 0.05
    """How far the target moves a step."""


@dataclass(frozen=True)
class Stack:
    """What M = policies x folds members are trained with; member (k, f) is k * folds + f."""

    problem: Problem
    head: Head
    acting: Tensor
    """(K, U, A) probabilities; unlisted: (K, U, samples, n, ...) drawn joint actions."""
    folds: int

    @property
    def listed(self) -> bool:
        return self.problem.actions.count > 0

    def seen(self, keys: Tensor) -> Tensor:
        """(M, B) -> what the head takes: states, or their features (M, B, F)."""
        problem = self.problem
        if problem.by_state:
            return keys
        features = problem.features
        assert features is not None
        return torch.from_numpy(features)[keys]

    def left(self, steps: np.ndarray) -> Tensor | None:
        """(M, B) step numbers -> (M, B, 1): the share of the horizon that is left."""
        if not self.problem.horizon:
            return None
        return torch.from_numpy((1 - steps / self.problem.horizon).astype(np.float32))[..., None]

    def logged(self, head: Head, transitions: np.ndarray) -> Tensor:
        """(M, B) -> (M, B): Q of the logged actions."""
        p = self.problem
        seen = self.seen(torch.from_numpy(p.keys[p.rows[transitions]]))
        left = self.left(p.steps[transitions])
        if self.listed:
            chosen = torch.from_numpy(p.numbers[transitions])[..., None]
            return _values(head(seen, left)).gather(-1, chosen).squeeze(-1)
        vectors = torch.from_numpy(p.actions.vectors(p.log.actions[transitions]))
        return head(seen, _joined(left, vectors)).squeeze(-1)

    def expected(self, head: Head, rows: np.ndarray) -> Tensor:
        """(M, B) -> (M, B): V of the rows under each member's policy."""
        p = self.problem
        keys = torch.from_numpy(p.keys[rows])
        seen, left = self.seen(keys), self.left(p.row_steps[rows])
        policy = torch.arange(len(keys))[:, None] // self.folds
        own = self.acting[policy, keys]  # (M, B, A) or (M, B, samples, n, ...)
        if self.listed:
            return (_values(head(seen, left)) * own).sum(-1)
        vectors = torch.from_numpy(p.actions.vectors(own.numpy()))
        values = [head(seen, _joined(left, vectors[:, :, m])).squeeze(-1) for m in range(own.shape[2])]
        return torch.stack(values).mean(0)


def _values(found: Tensor) -> Tensor:
    """(M, B, 1 + A): what all joint actions share, and each one's own part; one never logged is worth the former."""
    return found[..., :1] + found[..., 1:]


def _joined(left: Tensor | None, vectors: Tensor) -> Tensor:
    return vectors if left is None else torch.cat([left, vectors], -1)


def make_stack(problem: Problem, acts: Sequence[Act], folds: int, settings: NetworkSettings, seed: int) -> Stack:
    features = problem.features
    size = 0 if features is None else features.shape[1]
    seen = ObservationSpec("states", problem.distinct) if problem.by_state else ObservationSpec("vector", size)
    shape = LogShape(
        replace(problem.log.spec, observation=seen),
        np.zeros(size, np.float32),
        np.ones(size, np.float32),
        features if problem.by_state else None,
    )
    networks = LogNetworks(shape, settings.hidden, "both" if problem.by_state and size else "states", seed=seed)
    listed = problem.actions.count
    extra = bool(problem.horizon) + (0 if listed else problem.actions.vector_size)
    head = networks.head(1 + listed, len(acts) * folds, extra=extra)
    if listed:
        acting = np.stack([problem.probabilities(act) for act in acts])
    else:
        acting = np.stack([problem.samples(act, SAMPLES, seed) for act in acts])
    return Stack(problem, head, torch.from_numpy(acting), folds)
