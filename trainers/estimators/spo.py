"""Segment Policy Optimization, chain form (SPO, arXiv 2505.23564): values at the ends of segments, by continuations.

A of a segment = V(its end) - V(its start), on each of its decisions; V(s) the mean return of continuations under the
policy, the return itself at the end of the episode.

This project's choice: a segment is k decisions (the source cuts text at a fixed number of improbable tokens); all its
decisions learn (the source can mask the probable ones); segments around a boundary without a judged continuation are
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import Credit
from refork.trainers.estimators.continuations import segment_credit


@dataclass(frozen=True)
class SpoOptions:
    segment: int = 5
    """k: decisions in a segment; 1 is VinePPO."""


def spo_credit(experience: TaskExperience, options: SpoOptions) -> Credit:
    """Wants continuations drawn from the policy at decisions 0, k, 2k, ...

    Unbiased for the first decision of a segment; the others' baseline is the value of the segment's start.
    """
    return segment_credit(experience, options.segment)
