"""TreeRL (arXiv 2506.11902): how much better the leaves below a node did than all leaves, and than its parent's.

A(n) = ((V(n) - V(root)) + (V(n) - V(parent))) / sqrt(number of leaves below n), V the mean return of the leaves below.
A node is the stretch of decisions between two forks, each of which gets A(n).

The source meets a shared step once for each leaf below it, so that in its loss A counts sqrt(leaves) times; here a step
is met once, and the division is kept. Chains are expanded once (L = 1, the source's own setting): branches are not
forked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from refork.replay.trajectory import TaskExperience, Trajectory
from refork.trainers.advantages import Credit, returns, rloo_advantage
from refork.trainers.estimators.tree import Tree, fork_counts, zero_variance, zeros


@dataclass(frozen=True)
class TreeRlOptions:
    leave_one_out: bool = False
    """Leaves are normalised first: each minus the mean of the others."""


def treerl_credit(experience: TaskExperience, options: TreeRlOptions) -> Credit:
    """Wants expansions drawn from the policy. Biased: a node's own leaves are in the means it is compared with."""
    tree, advantages = Tree(experience), zeros(experience)
    scores = _scores(tree, options)
    root = fmean(scores.values()) if scores else 0.0
    for main in experience.mains:
        if main.value is not None:
            advantages[main.key] = _main_advantages(tree, main, scores, root)
    for leaf in tree.leaves:
        if leaf.origin is not None:
            above = tree.below(tree.parent(leaf.origin), leaf.origin.step - 1)
            parent = _mean(above, scores) if leaf.origin.step > 0 else root
            advantages[leaf.key][:] = 2 * scores[leaf.key] - root - parent
    return Credit(advantages, {**zero_variance(experience), **fork_counts(experience)})


def _main_advantages(tree: Tree, main: Trajectory, scores: Mapping[str, float], root: float) -> np.ndarray:
    """Stretch by stretch; the parent of the first one is the root. (steps,)"""
    starts = sorted({0, *tree.fork_steps(main)})
    advantages, parent = np.zeros(main.steps), root
    for start, end in zip(starts, [*starts[1:], main.steps], strict=True):
        below = tree.below(main, start)
        value = _mean(below, scores)
        advantages[start:end] = ((value - root) + (value - parent)) / len(below) ** 0.5
        parent = value
    return advantages


def _mean(leaves: list[Trajectory], scores: Mapping[str, float]) -> float:
    return fmean(scores[leaf.key] for leaf in leaves)


def _scores(tree: Tree, options: TreeRlOptions) -> dict[str, float]:
    """What each leaf counts; with leave-one-out 0 for one alone."""
    if not options.leave_one_out:
        return tree.values
    group = returns(tree.leaves)
    return {key: rloo_advantage(value, group) for key, value in tree.values.items()}
