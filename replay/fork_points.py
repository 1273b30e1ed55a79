"""Where to fork: rules with one signature give each decision a weight, and a draw without replacement picks.

A rule sees the rollout and its whole group, so that one which compares rollouts fits too. To add a rule, write a
function and put it into `RULES`. `bisect` alone is none: where it goes next depends on what the last fork returned.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np
from refork.replay.attribution import Answers, next_state
from refork.replay.trajectory import Trajectory

Rule = Callable[[Trajectory, Sequence[Trajectory]], np.ndarray]
"""(rollout, its group) -> weights (steps,), at least 0, not normalised."""

ENTROPY_FLOOR = 1e-4
"""Nats added to every entropy, so that a decided policy still forks somewhere."""
BISECT = "bisect"
DOUBT_FLOOR = 1e-4
"""Added to every 1 - pi(a), for the same."""


@dataclass(frozen=True)
class ForkPoint:
    """A decision chosen for forking; `probability` is that of one draw picking it, for inverse weights."""

    step: int
    probability: float


Points = Generator[ForkPoint, bool | None, None]
"""Decisions to fork, one after the other; it is sent whether an alternative of the last one returned more than the
rollout (None: not judged)."""


def uniform(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """Every decision alike."""
    return np.ones(rollout.steps)


def entropy(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """Policy entropy over the steps still to be played: where the policy is open, and late, so cheap."""
    entropies = np.array([d.entropy for d in rollout.decisions])
    return (entropies + ENTROPY_FLOOR) / np.arange(rollout.steps, 0, -1)


def cost_aware(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """Expected |A| over the square root of the steps still to be played: the least variance for what is spent.

    |A| stands in for the norm of the gradient (cost-aware GRPO). Before the fork it is taken as (1 - pi(a)) times a
    spread of returns that is the same at every step: A(a) = (1 - pi(a)) (Q(a) - Q(not a)).
    """
    doubt = np.array([1 - d.probability for d in rollout.decisions])
    return (doubt + DOUBT_FLOOR) / np.sqrt(np.arange(rollout.steps, 0, -1))


def pass_rate(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """Around the state from which the task would be passed half the time (prefix sampling, arXiv 2605.05112).

    From prefixes of successes where the group passes less often, of failures where more; others get 0 everywhere. The
    chance of a success is taken to go evenly from the group's to the rollout's own outcome (this project's choice);
    the weights are normal around that state with a standard deviation of an eighth of the rollout.
    """
    values = [t.value for t in group if t.value is not None]
    if rollout.value is None or not values or min(values) == max(values):
        return np.zeros(rollout.steps)
    low, high = min(values), max(values)
    rate = (float(np.mean(values)) - low) / (high - low)
    own = (rollout.value - low) / (high - low)
    if (own - 0.5) * (rate - 0.5) > 0:  # it only leads further from one half
        return np.zeros(rollout.steps)
    half = 0.0 if own == rate else (0.5 - rate) / (own - rate) * rollout.steps
    return np.exp(-0.5 * ((np.arange(rollout.steps) - half) / max(1.0, rollout.steps / 8)) ** 2)


def late(rollout: Trajectory, group: Sequence[Trajectory]) -> np.ndarray:
    """One over the steps still to be played: near the tail, whatever the policy thinks of it."""
    return 1.0 / np.arange(rollout.steps, 0, -1)


RULES: dict[str, Rule] = {
    "uniform": uniform,
    "entropy": entropy,
    "late": late,
    "cost_aware": cost_aware,
    "pass_rate": pass_rate,
}


def choose(
    rule: str, rollout: Trajectory, group: Sequence[Trajectory], count: int, rng: np.random.Generator
) -> tuple[ForkPoint, ...]:
    """At most `count` distinct decisions of `rollout`, in step order. Raises ValueError for an unknown rule."""
    if rule not in RULES:
        raise ValueError(f"no fork-point rule {rule!r}; there are: {', '.join([*RULES, BISECT])}")
    if rollout.steps == 0:
        return ()
    weights = RULES[rule](rollout, group)
    if not weights.any():
        return ()
    probabilities = weights / weights.sum()
    count = min(count, int(np.count_nonzero(probabilities)))
    steps = rng.choice(rollout.steps, size=count, replace=False, p=probabilities)
    return tuple(ForkPoint(int(step), float(probabilities[step])) for step in sorted(steps))


def points(rule: str, rollout: Trajectory, group: Sequence[Trajectory], count: int, rng: np.random.Generator) -> Points:
    """At most `count` decisions to fork, one after the other. Raises ValueError for an unknown rule."""
    return _bisected(rollout, count) if rule == BISECT else fixed(choose(rule, rollout, group, count, rng))


def fixed(chosen: Sequence[ForkPoint]) -> Points:
    """These, whatever came of the ones before."""
    for point in chosen:  # noqa: UP028 (what is iterated over cannot be sent anything)
        yield point


def _bisected(rollout: Trajectory, count: int) -> Points:
    """Divide and conquer for the decision that lost the rollout (replay/attribution.py). A decision may come again."""
    if not rollout.steps:
        return
    answers = Answers.none(rollout.steps)
    for _ in range(count):
        step = next_state(answers)
        better = yield ForkPoint(step, 1.0)
        answers = answers if better is None else answers.add(step, better)


def every_kth(rollout: Trajectory, k: int) -> tuple[ForkPoint, ...]:
    """Decisions 0, k, 2k, ...: nothing is drawn, so each is picked with probability 1."""
    return tuple(ForkPoint(step, 1.0) for step in range(0, rollout.steps, k))
