"""Turn credit: the group advantage, shifted between the turns of a rollout by what each of them changed.

A_t = (R - mean over the group) + beta (c_t - mean of c over the rollout). The second part sums to 0 inside a rollout:
it moves credit and adds none. It needs a credit c_t for each turn, which no source names for this table; here, and
this is this project's choice, c_t = V(s_{t+1}) - V(s_t), V(s) the mean return of all leaves below the state (states of
one id are one), the return itself at the end.

The mean of c is weighted by the tokens of a turn, since each token of it gets A_t. A decision here is one action, so it
weighs 1; `centred` takes other weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from refork.replay.trajectory import TaskExperience, Trajectory
from refork.trainers.advantages import Credit, returns
from refork.trainers.estimators.tree import Tree, fork_counts, state_means, zero_variance, zeros


@dataclass(frozen=True)
class TurnCreditOptions:
    beta: float = 1.0
    """Weight of what a turn changed; 0 is Dr.GRPO, on branches too."""


def turn_credit(experience: TaskExperience, options: TurnCreditOptions) -> Credit:
    """Wants forks drawn from the policy, or merges. Biased; over a rollout it sums to steps (R - mean)."""
    tree, advantages, group = Tree(experience), zeros(experience), returns(experience.mains)
    values = state_means(tree)
    for leaf in tree.leaves:
        if len(group) and leaf.steps:
            value = tree.values[leaf.key]
            changes = centred(progress(leaf, value, values), np.ones(leaf.steps))
            advantages[leaf.key] = value - group.mean() + options.beta * changes
    return Credit(advantages, {**zero_variance(experience), **fork_counts(experience)})


def progress(leaf: Trajectory, value: float, values: Mapping[str, float]) -> np.ndarray:
    """V after each decision minus V before it, `value` after the last; (steps,)."""
    return np.diff([*(values[d.state_id] for d in leaf.decisions), value])


def centred(credits: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """`credits` (turns,) minus their mean weighted by `tokens` (turns,): summed over tokens it is 0."""
    return credits - np.average(credits, weights=tokens)
