"""Where to fork: rules with one signature give each decision a weight, and a draw without replacement picks.

A rule sees the rollout and its whole group, so that one which compares rollouts fits too. To add a rule, write a
function and put it into `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from refork.replay.trajectory import Trajectory

Rule = Callable[[Trajectory, Sequence[Trajectory]], np.ndarray]
"""(rollout, its group) -> weights (steps,), at least 0, not normalised."""

ENTROPY_FLOOR = 1e-4
"""Nats added to every entropy, so that a decided policy still forks somewhere."""


@dataclass(frozen=True)
class ForkPoint:
    """A decision chosen for forking; `probability` is that of one draw picking it, for inverse weights."""

    step: int
    probability: float


def uniform(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """Every decision alike."""
    return np.ones(rollout.steps)


def entropy(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """Policy entropy over the steps still to be played: where the policy is open, and late, so cheap."""
    entropies = np.array([d.entropy for d in rollout.decisions])
    return (entropies + ENTROPY_FLOOR) / np.arange(rollout.steps, 0, -1)


def late(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """One over the steps still to be played: near the tail, whatever the policy thinks of it."""
    return 1.0 / np.arange(rollout.steps, 0, -1)


RULES: dict[str, Rule] = {"uniform": uniform, "entropy": entropy, "late": late}


def choose(
    rule: str, rollout: Trajectory, group: Sequence[Trajectory], count: int, rng: np.random.Generator
) -> tuple[ForkPoint, ...]:
    """At most `count` distinct decisions of `rollout`, in step order. Raises ValueError for an unknown rule."""
    if rule not in RULES:
        raise ValueError(f"no fork-point rule {rule!r}; there are: {', '.join(RULES)}")
    if rollout.steps == 0:
        return ()
    weights = RULES[rule](rollout, group)
    probabilities = weights / weights.sum()
    count = min(count, int(np.count_nonzero(probabilities)))
    steps = rng.choice(rollout.steps, size=count, replace=False, p=probabilities)
    return tuple(ForkPoint(int(step), float(probabilities[step])) for step in sorted(steps))


def every_kth(rollout: Trajectory, k: int) -> tuple[ForkPoint, ...]:
    """Decisions 0, k, 2k, ...: nothing is drawn, so each is picked with probability 1."""
    return tuple(ForkPoint(step, 1.0) for step in range(0, rollout.steps, k))
