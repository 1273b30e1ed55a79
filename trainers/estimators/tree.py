"""A task group as a tree, and as a DAG: what the estimators read advantages off.

The tree: a root, below it the main rollouts, below each main rollout the branches that left it. Every trajectory ends
in one leaf, whose value is its return. Expansions stay apart even when they take the same action, as rollouts of a
group do. The DAG: the same, with states of one id as one. Trajectories that were not judged are in neither.

A branch holds its own decisions only, so a prefix that it shares is met once, in its parent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

import numpy as np
from refork.replay.trajectory import Decision, Origin, TaskExperience, Trajectory
from refork.trainers.advantages import returns


class Tree:
    """The judged leaves of a group. Branches leave main rollouts, never branches, as the collector makes them."""

    def __init__(self, experience: TaskExperience) -> None:
        self.leaves = [t for t in experience.trajectories if t.value is not None]
        self.values = {t.key: t.value for t in experience.trajectories if t.value is not None}
        self.mains = experience.mains
        self._mains = {t.key: t for t in experience.mains}
        self._branches: dict[str, list[tuple[Origin, Trajectory]]] = defaultdict(list)
        for leaf in self.leaves:
            if leaf.origin is not None:
                self._branches[leaf.origin.parent].append((leaf.origin, leaf))

    def parent(self, origin: Origin) -> Trajectory:
        """The main rollout that a branch left, judged or not."""
        return self._mains[origin.parent]

    def fork_steps(self, main: Trajectory) -> list[int]:
        """Decisions before which a judged branch left `main`, in order."""
        return sorted({origin.step for origin, _ in self._branches[main.key]})

    def suffixes(self, main: Trajectory, step: int) -> list[Trajectory]:
        """The leaves that share the prefix of `main` before `step` and part there: its own, and those branches."""
        own = [main] if main.value is not None else []
        return own + [leaf for origin, leaf in self._branches[main.key] if origin.step == step]

    def below(self, trajectory: Trajectory, step: int) -> list[Trajectory]:
        """The leaves reached through decision `step` of `trajectory`: its own, and branches that left it later."""
        own = [trajectory] if trajectory.value is not None else []
        return own + [leaf for origin, leaf in self._branches[trajectory.key] if origin.step > step]

    def path(self, leaf: Trajectory) -> tuple[Decision, ...]:
        """All decisions from the root to `leaf`, those of its parent before the fork included."""
        origin = leaf.origin
        prefix = () if origin is None else self._mains[origin.parent].decisions[: origin.step]
        return prefix + leaf.decisions


def fork_counts(experience: TaskExperience) -> dict[str, int]:
    """Forks; those without a judged branch; branches without a judgement; points where nothing was forked."""
    value = {t.key: t.value for t in experience.branches}
    played = [(*fork.alternatives, *fork.replays) for fork in experience.forks]
    return {
        "forks": len(played),
        "masked_forks": sum(all(value[key] is None for key in keys) for keys in played),
        "masked_branches": sum(v is None for v in value.values()),
        "skipped_points": experience.skipped,
    }


def zero_variance(experience: TaskExperience) -> dict[str, int]:
    """Whether all judged returns of the group, branches included, are one number (of one leaf too)."""
    leaves = returns(experience.trajectories)
    return {"zero_variance_groups": int(len(leaves) > 0 and float(np.ptp(leaves)) == 0.0)}


def zeros(experience: TaskExperience) -> dict[str, np.ndarray]:
    """No advantage anywhere, to be filled in."""
    return {t.key: np.zeros(t.steps) for t in experience.trajectories}


def state_means(tree: Tree) -> Mapping[str, float]:
    """By state id the mean return of the leaves whose path visits it, each once."""
    visits: dict[str, list[float]] = defaultdict(list)
    for leaf in tree.leaves:
        for state in {d.state_id for d in tree.path(leaf)}:
            visits[state].append(tree.values[leaf.key])
    return {state: fmean(values) for state, values in visits.items()}
