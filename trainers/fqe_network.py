"""Fitted Q evaluation by networks: all policies and all folds are one stack, each with a slowly moving target."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from refork.agents.q_networks import Head, LogNetworks, LogShape
from refork.envs.log_spec import Act, ObservationSpec
from refork.replay.seeding import generator
from refork.trainers.fqe_iteration import Evaluated
from refork.trainers.fqe_problem import Problem
from torch import Tensor
from torch.nn import functional

SAMPLES = 8
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
class _Stack:
    """What M = policies x folds members are trained with; member (k, f) is k * folds + f."""

    problem: Problem
    head: Head
    acting: Tensor
    """(K, U, A) probabilities; unlisted: (K, U, samples, vector) of drawn joint actions."""
    folds: int

    @property
    def listed(self) -> bool:
        return self.problem.actions.count > 0

    def seen(self, keys: Tensor) -> Tensor:
        """(M, B) -> what the head takes: states, or their features (M, B, F)."""
        problem = self.problem
        if problem.distinct != len(problem.log.observations):
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
        own = self.acting[policy, keys]  # (M, B, A) or (M, B, samples, vector)
        if self.listed:
            return (_values(head(seen, left)) * own).sum(-1)
        values = [head(seen, _joined(left, own[:, :, m])).squeeze(-1) for m in range(own.shape[2])]
        return torch.stack(values).mean(0)


def _values(found: Tensor) -> Tensor:
    """(M, B, 1 + A): what all joint actions share, and each one's own part; one never logged is worth the former."""
    return found[..., :1] + found[..., 1:]


def _joined(left: Tensor | None, vectors: Tensor) -> Tensor:
    return vectors if left is None else torch.cat([left, vectors], -1)


def evaluate_by_network(
    problem: Problem, acts: Sequence[Act], folds: Sequence[np.ndarray], settings: NetworkSettings, seed: int
) -> list[list[Evaluated]]:
    """Evaluate K policies, each once a fold, learning from the fold's transitions only. [policy][fold]."""
    stack = _stack(problem, acts, len(folds), settings, seed)
    target = copy.deepcopy(stack.head).requires_grad_(False)
    optimiser = torch.optim.AdamW(
        stack.head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.steps)
    draws = [generator(seed, "fqe", f) for f in range(len(folds))]
    curves: list[tuple[int, np.ndarray]] = []
    for step in range(settings.steps):
        chosen = np.stack(
            [fold[g.integers(len(fold), size=settings.batch)] for fold, g in zip(folds, draws, strict=True)]
        )
        _learn(stack, target, np.tile(chosen, (len(acts), 1)))
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            for kept, now in zip(target.parameters(), stack.head.parameters(), strict=True):
                kept.lerp_(now, settings.target_rate)
        if step == 0 or (step + 1) % max(1, settings.steps // 20) == 0:
            curves.append((step + 1, _at_starts(stack)))
    return _evaluated(stack, curves)


def _learn(stack: _Stack, target: Head, chosen: np.ndarray) -> None:
    """Gradients of the squared temporal difference, each member its own."""
    p = stack.problem
    discounts = p.discounts[chosen]
    if p.horizon:
        discounts = discounts * (p.steps[chosen] + 1 < p.horizon)
    with torch.no_grad():
        after = stack.expected(target, p.rows[chosen] + 1)
        goals = torch.from_numpy(p.rewards[chosen]).float() + torch.from_numpy(discounts).float() * after
    loss = functional.mse_loss(stack.logged(stack.head, chosen), goals, reduction="none").mean(-1).sum()
    for parameter, found in zip(
        stack.head.parameters(), torch.autograd.grad(loss, list(stack.head.parameters())), strict=True
    ):
        parameter.grad = found


def _stack(problem: Problem, acts: Sequence[Act], folds: int, settings: NetworkSettings, seed: int) -> _Stack:
    by_state = problem.distinct != len(problem.log.observations)
    features = problem.features
    size = 0 if features is None else features.shape[1]
    seen = ObservationSpec("states", problem.distinct) if by_state else ObservationSpec("vector", size)
    shape = LogShape(
        replace(problem.log.spec, observation=seen),
        np.zeros(size, np.float32),
        np.ones(size, np.float32),
        features if by_state else None,
    )
    networks = LogNetworks(shape, settings.hidden, "both" if by_state and size else "states", seed=seed)
    listed = problem.actions.count
    extra = bool(problem.horizon) + (0 if listed else problem.actions.vector_size)
    head = networks.head(1 + listed, len(acts) * folds, extra=extra)
    if listed:
        acting = np.stack([problem.probabilities(act) for act in acts])
    else:
        drawn = [problem.samples(act, SAMPLES, seed) for act in acts]
        acting = np.stack([problem.actions.vectors(actions) for actions in drawn])
    return _Stack(problem, head, torch.from_numpy(acting), folds)


@torch.no_grad()
def _at_starts(stack: _Stack) -> np.ndarray:
    """(M,): mean value at the starts of at most 1,000 episodes."""
    log = stack.problem.log
    rows = (log.starts[:-1] + np.arange(log.episodes))[:1000]
    return _by_member(stack, rows)[1].mean(1)


@torch.no_grad()
def _by_member(stack: _Stack, rows: np.ndarray, transitions: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(M, transitions) values of what was logged, and (M, rows) of rows, a chunk at a time."""
    members, found_q, found_v = stack.acting.shape[0] * stack.folds, [], []
    for start in range(0, len(rows), 2048):
        part = np.tile(rows[start : start + 2048], (members, 1))
        found_v.append(stack.expected(stack.head, part).numpy())
    for start in range(0, 0 if transitions is None else len(transitions), 2048):
        assert transitions is not None
        part = np.tile(transitions[start : start + 2048], (members, 1))
        found_q.append(stack.logged(stack.head, part).numpy())
    q = np.concatenate(found_q, 1) if found_q else np.zeros((members, 0))
    return q, np.concatenate(found_v, 1)


def _evaluated(stack: _Stack, curves: Sequence[tuple[int, np.ndarray]]) -> list[list[Evaluated]]:
    p = stack.problem
    q, v = _by_member(stack, np.arange(len(p.log.observations)), np.arange(len(p.log)))
    v[:, p.rows[np.asarray(p.log.terminated)] + 1] = 0.0
    if p.horizon:
        v[:, p.row_steps >= p.horizon] = 0.0
    span = max(np.ptp(p.log.returns(p.gamma)), 1e-12)
    found: list[list[Evaluated]] = []
    for k in range(len(stack.acting)):
        found.append([])
        for member in range(k * stack.folds, (k + 1) * stack.folds):
            curve = tuple((step, float(values[member])) for step, values in curves)
            late = np.array([value for step, value in curve if step > 0.75 * curve[-1][0]])
            settled = bool(np.isfinite(late).all() and np.ptp(late) < 0.05 * span)
            found[-1].append(Evaluated(q[member].astype(np.float64), v[member].astype(np.float64), curve, settled))
    return found
