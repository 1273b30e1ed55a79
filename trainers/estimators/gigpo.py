"""GiGPO (arXiv 2505.10978): the rollout within its group, and each step within the visits of its state.

A_t = (R - mean over rollouts) + w (G_t - mean of G over all visits of the same state id); a state met once adds 0.
Without the division by a deviation, which the source has as one of two forms. It wants merges and no forks: branches
get nothing and are in no mean.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit, outcome_credit
from refork.trainers.estimators.tree import zeros


@dataclass(frozen=True)
class GigpoOptions:
    state_weight: float = 1.0
    """w; 0 is Dr.GRPO."""
    discount: float = 1.0
    """Per decision to the end, in G_t. The source has 0.95, which prefers short episodes of equal return."""


def gigpo_credit(experience: TaskExperience, options: GigpoOptions) -> Credit:
    """Biased towards 0: with n visits of a state the second part is (1 - 1/n) of the advantage."""
    base = outcome_credit(experience, "dr_grpo")
    steps, visits = zeros(experience), defaultdict(list)
    for main in experience.mains:
        if main.value is not None:
            steps[main.key] = to_go(main.value, main.steps, options.discount)
            for decision, value in zip(main.decisions, steps[main.key], strict=True):
                visits[decision.state_id].append(value)
    for main in experience.mains:
        if main.value is not None:
            means = np.array([np.mean(visits[d.state_id]) for d in main.decisions])
            steps[main.key] = base.values[main.key] + options.state_weight * (steps[main.key] - means)
    merged = sum(len(values) for values in visits.values() if len(values) > 1)
    return Credit(steps, {**base.counts, "merged_steps": merged})


def to_go(value: float, steps: int, discount: float) -> np.ndarray:
    """G_t: the return, discounted by the decisions still to come; (steps,)."""
    return value * discount ** np.arange(steps - 1, -1, -1.0)
