"""VinePPO (arXiv 2410.01679): the value of every visited state by continuations from it.

A_t = r_t + V(s_{t+1}) - V(s_t), V(s) the mean return of K continuations under the policy, 0 at the end. The return
comes at the end here, so r_t is 0 before it. As in the source, branches value states and are not learnt from.

This project's choice: continuations from states of one id are pooled; a state without a judged continuation joins its
decision to the segment before it, so that the sum over a rollout stays R - V(s_0).
"""

from __future__ import annotations

from dataclasses import dataclass

from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit
from refork.trainers.estimators.continuations import segment_credit


@dataclass(frozen=True)
class VinePpoOptions:
    """Nothing to choose: K is a matter of the forks."""


def vineppo_credit(experience: TaskExperience, options: VinePpoOptions) -> Credit:
    """Wants K continuations drawn from the policy at every decision. Unbiased."""
    return segment_credit(experience, every=1)
