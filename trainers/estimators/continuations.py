"""Values of states by fresh continuations, and advantages as their differences: what VinePPO and SPO share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

import numpy as np
from refork.replay.trajectory import TaskExperience, Trajectory
from refork.trainers.advantages import Credit
from refork.trainers.estimators.tree import fork_counts, zero_variance, zeros


def continuation_values(experience: TaskExperience) -> dict[str, float]:
    """By state id the mean return of the judged branches played from it.

    It is the state's value where the branches' first actions were drawn from the policy (ForkConfig.actions =
    "policy"). The rollouts themselves are left out: their returns depend on the actions that are to be valued.
    """
    mains = {t.key: t for t in experience.mains}
    found: dict[str, list[float]] = defaultdict(list)
    for branch in experience.branches:
        if branch.origin is not None and branch.value is not None:
            state = mains[branch.origin.parent].decisions[branch.origin.step].state_id
            found[state].append(branch.value)
    return {state: fmean(values) for state, values in found.items()}


def valued_steps(main: Trajectory, values: Mapping[str, float], every: int) -> list[int]:
    """Decisions 0, `every`, 2 `every`, ... of `main` whose state has a value."""
    return [step for step in range(0, main.steps, every) if main.decisions[step].state_id in values]


def differences(main: Trajectory, value: float, values: Mapping[str, float], every: int) -> np.ndarray:
    """V at the end of each segment minus V at its start, on every decision of the segment; (steps,).

    Segments begin at valued steps; the end of the episode has the return, `value`. Decisions before the first
    valued step get 0.
    """
    starts = valued_steps(main, values, every)
    levels = [values[main.decisions[step].state_id] for step in starts] + [value]
    advantages = np.zeros(main.steps)
    for start, end, before, after in zip(starts, [*starts[1:], main.steps], levels, levels[1:], strict=False):
        advantages[start:end] = after - before
    return advantages


def segment_credit(experience: TaskExperience, every: int) -> Credit:
    """`differences` on judged main rollouts; nothing on the branches, which only value states."""
    values, advantages, unvalued = continuation_values(experience), zeros(experience), 0
    for main in experience.mains:
        if main.value is not None:
            advantages[main.key] = differences(main, main.value, values, every)
            unvalued += min(valued_steps(main, values, every), default=main.steps)
    counts = {**zero_variance(experience), **fork_counts(experience), "unvalued_steps": unvalued}
    return Credit(advantages, counts)
