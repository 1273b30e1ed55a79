"""Fitted Q evaluation by networks: all policies and all folds are one stack, each with a slowly moving target.

Targets are kept within half a range of the returns that the log shows, so that what a network makes up where a policy
leaves the log does not feed on itself.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from refork.agents.q_networks import Head
from refork.envs.log_spec import Act
from refork.replay.seeding import generator
from refork.trainers.fqe_iteration import Evaluated
from refork.trainers.fqe_problem import Problem
from refork.trainers.fqe_stack import NetworkSettings, Stack, make_stack
from torch.nn import functional


def evaluate_by_network(
    problem: Problem, acts: Sequence[Act], folds: Sequence[np.ndarray], settings: NetworkSettings, seed: int
) -> list[list[Evaluated]]:
    """Evaluate K policies, each once a fold, learning from the fold's transitions only. [policy][fold]."""
    stack = make_stack(problem, acts, len(folds), settings, seed)
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


def _learn(stack: Stack, target: Head, chosen: np.ndarray) -> None:
    """Gradients of the squared temporal difference, each member its own."""
    p = stack.problem
    discounts = p.discounts[chosen]
    if p.horizon:
        discounts = discounts * (p.steps[chosen] + 1 < p.horizon)
    with torch.no_grad():
        after = stack.expected(target, p.rows[chosen] + 1)
        goals = torch.from_numpy(p.rewards[chosen]).float() + torch.from_numpy(discounts).float() * after
    goals = goals.clamp(*p.plausible)
    loss = functional.mse_loss(stack.logged(stack.head, chosen), goals, reduction="none").mean(-1).sum()
    for parameter, found in zip(
        stack.head.parameters(), torch.autograd.grad(loss, list(stack.head.parameters())), strict=True
    ):
        parameter.grad = found


@torch.no_grad()
def _at_starts(stack: Stack) -> np.ndarray:
    """(M,): mean value at the starts of at most 1,000 episodes."""
    return _by_member(stack, stack.problem.first_rows[:1000])[1].mean(1)


@torch.no_grad()
def _by_member(stack: Stack, rows: np.ndarray, transitions: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
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


def _evaluated(stack: Stack, curves: Sequence[tuple[int, np.ndarray]]) -> list[list[Evaluated]]:
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
