"""Cost-aware sampling: of any estimator's advantages, those that tell much for little are learnt from.

A step is kept with probability p proportional to |A| / sqrt(cost), cost = the decisions from it to the end, and then
weighted by 1 / p, clipped; the others get 0 and so are left out of the loss. From a seed idea on cost-aware GRPO: |A|
stands in for the norm of the gradient. Without the clip the mean over draws is A; with it A min(1, clip p).

This project's choices: p is normalised within a task's group so that `share` of its steps with an advantage are kept
on average (fewer where p would exceed 1), and steps are drawn independently.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from refork.replay.seeding import generator
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit, without_dust
from refork.trainers.estimators.treerl import TreeRlOptions, treerl_credit

Base = Callable[[TaskExperience], Credit]


def _treerl(experience: TaskExperience) -> Credit:
    return treerl_credit(experience, TreeRlOptions())


@dataclass(frozen=True)
class CostAwareOptions:
    base: Base = field(default=_treerl)
    """The estimator that is sampled from."""
    share: float = 0.5
    """Steps kept, of those that have an advantage."""
    weight_clip: float = 5.0
    """Largest 1 / p."""
    seed: int = 0
    """With the trajectory's key, what the draws come from."""


def cost_aware_credit(experience: TaskExperience, options: CostAwareOptions) -> Credit:
    """Unbiased for what `base` estimates as long as nothing is clipped."""
    credit = without_dust(options.base(experience), experience)  # dust would count among the steps to share
    kept = keep_probabilities(credit, options.share)
    values, sampled, dropped = {}, 0, 0
    for key, advantages in credit.values.items():
        drawn = generator(options.seed, f"cost_aware/{key}").random(len(advantages)) < kept[key]
        weights = np.minimum(1.0 / np.where(drawn, kept[key], 1.0), options.weight_clip)
        values[key] = np.where(drawn, weights * advantages, 0.0)
        sampled, dropped = sampled + int(drawn.sum()), dropped + int((~drawn & (advantages != 0)).sum())
    return Credit(values, {**credit.counts, "sampled_steps": sampled, "dropped_steps": dropped})


def keep_probabilities(credit: Credit, share: float) -> dict[str, np.ndarray]:
    """By key the probability that each step is kept, (steps,); 0 where the advantage is 0."""
    worth = {key: np.abs(a) / np.sqrt(np.arange(len(a), 0, -1)) for key, a in credit.values.items()}
    total = sum(float(w.sum()) for w in worth.values())
    count = share * sum(int(np.count_nonzero(w)) for w in worth.values())
    return {key: np.minimum(1.0, count * w / total) if total > 0 else w for key, w in worth.items()}
