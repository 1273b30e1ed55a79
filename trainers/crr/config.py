"""Settings of Counterfactual Rollout Replay. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from refork.trainers.config import PolicyGradientConfig


class AlgorithmConfig(PolicyGradientConfig):
    """The defaults are the tuned form; the paper's plain form is `outcome="none"`, `scale=false`, `mirror="none"`,
    `branch_steps=false`, `which="all"`."""

    kind: Literal["crr"] = "crr"
    """Algorithm."""
    which: Literal["mixed_successes", "mixed_failures", "mixed", "all"] = "mixed_successes"
    """Rollouts that are forked: those above the mean of a group with both outcomes; under it; all of such a group;
    all."""
    rule: Literal["entropy", "uniform", "late", "cost_aware", "pass_rate", "bisect"] = "entropy"
    """Fork-point rule (replay/fork_points.py)."""
    forks: float = Field(8.0, gt=0)
    """Fork points per forked rollout, to begin with when it adapts."""
    alternatives: int = Field(1, ge=1)
    """Other actions played per fork point (K)."""
    replays: int = Field(0, ge=0)
    """Fresh continuations with the taken action per fork point (M - 1)."""
    floor: float = Field(0.0, ge=0, lt=1)
    """A point is skipped when no other action is possible, or none is at least that probable. On the chain any floor
    costs success: what a confident policy deems impossible teaches it the most."""
    noise: Literal["same", "fresh"] = "fresh"
    """Exogenous randomness of branches."""
    adapt: bool = True
    """Fork more while forks tell something, less when both sides mostly return the same."""
    adapt_target: float = Field(0.25, gt=0, lt=1)
    """Share of forks with a difference at which the amount stays."""
    adapt_rate: float = Field(0.2, gt=0)
    """How fast the amount moves."""
    forks_min: float = Field(1.0, gt=0)
    """Fewest fork points per forked rollout."""
    forks_max: float = Field(8.0, gt=0)
    """Most fork points per forked rollout."""
    outcome: Literal["rloo", "grpo", "dr_grpo", "none"] = "rloo"
    """Advantage of decisions that were not forked."""
    scale: bool = True
    """Multiply the differential by 1 - pi(a)."""
    mirror: Literal["probability", "importance", "none"] = "probability"
    """Weight of the mirrored differential on the alternative's own step: pi(a), 1 - pi(a), or 0."""
    branch_steps: bool = True
    """Learn from the on-policy steps of branches after the fork."""
    selection: Literal["plain", "weighted"] = "plain"
    """Weigh each point by the inverse of its probability of being picked."""
    selection_clip: float = Field(5.0, ge=1)
    """Largest such weight."""

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        if self.group < 2 and self.which != "all":
            raise ValueError('group: a rollout alone is never forked unless which = "all"; give it 2 or more')
        return self

    distil: float = Field(0.0, ge=0)
    """Counterfactual distillation: weight of imitating, in the state of the fork, the action of a branch that returned
    more than the rollout it left. Only failures can be corrected, so `which` must fork them."""

    @model_validator(mode="after")
    def _check_distil(self) -> Self:
        if self.distil and self.which == "mixed_successes":
            raise ValueError('distil: corrects failures, and none is forked; give which = "mixed" (or mixed_failures)')
        return self

    @model_validator(mode="after")
    def _check_rule(self) -> Self:
        if self.rule == "bisect" and self.which == "mixed_successes":
            raise ValueError('rule: bisect looks for what lost a rollout; give which = "mixed_failures"')
        if self.rule == "pass_rate" and self.which not in ("mixed", "all"):
            raise ValueError('rule: pass_rate forks successes of hard, failures of easy tasks; give which = "mixed"')
        return self

    @model_validator(mode="after")
    def _check_forks(self) -> Self:
        if not self.forks_min <= self.forks <= self.forks_max and self.adapt:
            raise ValueError(
                f"forks_min <= forks <= forks_max must hold, got {self.forks_min} <= {self.forks} <= {self.forks_max}"
            )
        return self
