"""Counterfactual Rollout Replay: the advantage of a decision is what its action returned minus what others would have.

The source states only: advantage = sampled on-policy return - counterfactual return at restored decision points.
Everything else here is this project's choice:

- the differential is scaled by 1 - pi(a): with Q(not a) the value of the other actions under the policy,
  A(a) = Q(a) - V = (1 - pi(a)) (Q(a) - Q(not a)), exactly;
- the first step of a branch gets the mirrored differential, weighted by pi(a) (A(not a) = -pi(a) (Q(a) - Q(not a)));
- later steps of a branch are on-policy data with the mean of the task's main rollouts as baseline;
- decisions that were not forked get the outcome advantage of their rollout, or nothing;
- choosing where to fork selects; `selection="weighted"` weighs each point by the inverse of its probability of being
  picked (clipped), as far as steps within a rollout go. That only some rollouts are forked is not corrected.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from refork.replay.trajectory import Fork, TaskExperience, Trajectory
from refork.trainers.advantages import Credit, outcome_credit, returns


@dataclass(frozen=True)
class CrrForm:
    """Which form of the estimator. The defaults are the tuned form, `PAPER` the plain one."""

    outcome: Literal["grpo", "dr_grpo", "rloo", "none"] = "rloo"
    """Advantage of decisions that were not forked."""
    scale: bool = True
    """Multiply the differential by 1 - pi(a)."""
    mirror: Literal["probability", "importance", "none"] = "probability"
    """Weight of the mirrored differential on a branch's own first step: pi(a), 1 - pi(a) (importance weight for having
    been drawn from pi without a), or 0."""
    branch_steps: bool = True
    """Learn from the later steps of branches."""
    selection: Literal["plain", "weighted"] = "plain"
    """Inverse selection probability as a weight on each differential."""
    selection_clip: float = 5.0
    """Largest such weight."""


COUNTS = ("forks", "masked_pairs", "masked_forks", "informative_forks")
PAPER = CrrForm(outcome="none", scale=False, mirror="none", branch_steps=False)


def crr_credit(experience: TaskExperience, form: CrrForm) -> Credit:
    """Advantages of main rollouts and branches, and what was masked or uninformative."""
    base = outcome_credit(experience, "rloo" if form.outcome == "none" else form.outcome)
    values = {key: v if form.outcome != "none" else np.zeros_like(v) for key, v in base.values.items()}
    values |= _branch_values(experience, form)
    by_key = {t.key: t for t in experience.trajectories}
    counts = Counter({**base.counts, **dict.fromkeys(COUNTS, 0), "skipped_points": experience.skipped})
    differentials: dict[tuple[str, int], list[float]] = defaultdict(list)
    for fork in experience.forks:
        gap = differential(fork, by_key)
        counts.update(_count(fork, by_key, gap))
        if gap is not None:
            weight = _selection_weight(fork, by_key[fork.parent].steps, form)
            probability = by_key[fork.parent].decisions[fork.step].probability
            differentials[fork.parent, fork.step].append(weight * gap * (1 - probability if form.scale else 1.0))
            _mirror(values, fork, by_key, form, weight)
    for (key, step), gaps in differentials.items():
        values[key][step] = np.mean(gaps)
    return Credit(values, counts)


def revisions(experience: TaskExperience) -> dict[str, np.ndarray]:
    """Decisions to imitate: the first of every branch that took another action and returned more than the rollout it
    left. Its observation is that of the fork, so nothing of the branch is in what is learnt."""
    by_key = {t.key: t for t in experience.trajectories}
    found = {}
    for fork in experience.forks:
        lost = by_key[fork.parent].value
        for key in fork.alternatives:
            value, steps = by_key[key].value, by_key[key].steps
            if lost is not None and value is not None and value > lost and steps:
                found[key] = np.arange(steps) == 0
    return found


def taken_returns(fork: Fork, by_key: Mapping[str, Trajectory]) -> np.ndarray:
    """Returns with the action taken: the rollout's own and those of its replays (M in all), judged ones only."""
    return returns([by_key[key] for key in (fork.parent, *fork.replays)])


def differential(fork: Fork, by_key: Mapping[str, Trajectory]) -> float | None:
    """mean_m R(s_t, a_t; m) - mean_k R(s_t, a'_k); None when a side has no judgement."""
    taken, others = taken_returns(fork, by_key), returns([by_key[key] for key in fork.alternatives])
    return float(taken.mean() - others.mean()) if len(taken) and len(others) else None


def _count(fork: Fork, by_key: Mapping[str, Trajectory], gap: float | None) -> dict[str, int]:
    pairs = (*fork.alternatives, *fork.replays)
    return {
        "forks": 1,
        "masked_pairs": sum(by_key[key].value is None for key in pairs),
        "masked_forks": int(gap is None),
        "informative_forks": int(gap is not None and gap != 0.0),
    }


def _selection_weight(fork: Fork, steps: int, form: CrrForm) -> float:
    """Uniform over chosen probability, clipped."""
    return min(form.selection_clip, 1.0 / (steps * fork.selection)) if form.selection == "weighted" else 1.0


def _mirror(
    values: dict[str, np.ndarray], fork: Fork, by_key: Mapping[str, Trajectory], form: CrrForm, weight: float
) -> None:
    """Put the mirrored differential on the first step of each alternative."""
    taken = taken_returns(fork, by_key).mean()
    probability = by_key[fork.parent].decisions[fork.step].probability
    factor = {"probability": probability, "importance": 1 - probability, "none": 0.0}[form.mirror]
    for key in fork.alternatives:
        value = by_key[key].value
        if value is not None and len(values[key]):
            values[key][0] = weight * factor * (value - taken) / len(fork.alternatives)


def _branch_values(experience: TaskExperience, form: CrrForm) -> dict[str, np.ndarray]:
    """On-policy steps of branches against the task's mean; the first step is set by the fork."""
    group = returns(experience.mains)
    values = {}
    for branch in experience.branches:
        learn = form.branch_steps and branch.value is not None and len(group) > 0
        values[branch.key] = np.full(branch.steps, branch.value - group.mean() if learn else 0.0)
        values[branch.key][:1] = 0.0
    return values
