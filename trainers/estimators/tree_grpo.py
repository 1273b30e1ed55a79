"""Tree-GRPO (Tree Search for LLM Agent Reinforcement Learning, arXiv 2509.21240): within its tree, and among all.

A leaf gets (R - mean of the leaves of its tree) + z-score of R over all leaves of the task. A tree is a main rollout
with its branches.

This project's choices: the part within the tree is not divided by a deviation; a decision that several leaves share is
met once and gets the mean of what its leaves got, so that its gradient is that of replaying the prefix in every leaf
with weights that sum to 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import numpy as np
from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit, grpo_advantage, returns
from refork.trainers.estimators.tree import Tree, fork_counts, zero_variance, zeros


@dataclass(frozen=True)
class TreeGrpoOptions:
    """Nothing to choose."""


def tree_grpo_credit(experience: TaskExperience, options: TreeGrpoOptions) -> Credit:
    """Wants expansions drawn from the policy. Biased: own returns are in the means and in the deviation."""
    tree, advantages = Tree(experience), zeros(experience)
    leaves = leaf_advantages(tree)
    for leaf in tree.leaves:
        shared = (tree.below(leaf, step) for step in range(leaf.steps))
        advantages[leaf.key] = np.array([fmean(leaves[below.key] for below in found) for found in shared])
    return Credit(advantages, {**zero_variance(experience), **fork_counts(experience)})


def leaf_advantages(tree: Tree) -> dict[str, float]:
    """By key what each leaf gets, before prefixes are shared."""
    group = returns(tree.leaves)
    found: dict[str, float] = {}
    for main in tree.mains:
        siblings = {leaf.key: tree.values[leaf.key] for leaf in tree.below(main, -1)}
        mean = fmean(siblings.values()) if siblings else 0.0
        found |= {key: value - mean + grpo_advantage(value, group) for key, value in siblings.items()}
    return found
