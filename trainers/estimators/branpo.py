"""BranPO (arXiv 2602.03719): late branches, each suffix against the others that share its prefix.

The source is known here by its abstract, so all of this is this project's reading of it: "truncates trajectories near
the tail and resamples alternative continuations to construct contrastive suffixes over shared prefixes", "difficulty-
aware branch sampling" and "redundant step masking".

- The suffixes of a prefix are the rest of the rollout that was forked and the branches played from there. Each gets
  its return minus the mean of the others, on all its decisions from the fork on.
- Where a rollout was forked more than once, a decision of it counts to the last fork before it.
- Decisions before the first fork get R - mean over the group.
- Steps that change nothing (the state before and after has one id) get 0.
- Where and how often: ForkConfig with rule = "late" and `by_difficulty`, more forks the lower the group's mean return.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from refork.replay.trajectory import TaskExperience, Trajectory
from refork.trainers.advantages import Credit, outcome_credit, returns
from refork.trainers.estimators.tree import Tree, fork_counts, zero_variance, zeros


@dataclass(frozen=True)
class BranpoOptions:
    """Nothing to choose."""


def branpo_credit(experience: TaskExperience, options: BranpoOptions) -> Credit:
    """Wants branches drawn from the policy. Unbiased at the fork where forks do not depend on the group's returns;
    how often a task is forked does (`by_difficulty`), which bends it a little."""
    tree, advantages = Tree(experience), zeros(experience)
    base = outcome_credit(experience, "dr_grpo")
    advantages |= {key: np.array(values) for key, values in base.values.items()}
    for main in experience.mains:
        for step in tree.fork_steps(main):
            _contrast(advantages, tree.suffixes(main, step), main, step)
    masked = 0
    for leaf in tree.leaves:
        idle = idle_steps(leaf)
        advantages[leaf.key][idle] = 0.0
        masked += int(idle.sum())
    counts = {**zero_variance(experience), **fork_counts(experience), "masked_steps": masked}
    return Credit(advantages, counts)


def _contrast(advantages: dict[str, np.ndarray], suffixes: list[Trajectory], main: Trajectory, step: int) -> None:
    """Each suffix against the mean of the others; a suffix alone has nothing to be compared with and gets 0."""
    values = returns(suffixes)
    for suffix, value in zip(suffixes, values, strict=True):
        others = (values.sum() - value) / (len(values) - 1) if len(values) > 1 else value
        advantages[suffix.key][step if suffix is main else 0 :] = value - others


def idle_steps(trajectory: Trajectory) -> np.ndarray:
    """Decisions after which the state is the one before; what the last one led to is not recorded. (steps,), bool."""
    states = [d.state_id for d in trajectory.decisions]
    return np.array([*(a == b for a, b in pairwise(states)), False][: len(states)], dtype=np.bool_)
