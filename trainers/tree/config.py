"""Settings of the estimators that read advantages off forks and merges. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from refork.trainers.config import PolicyGradientConfig

PLACED = ("which", "alternatives", "floor", "noise")
DRAWN = (*PLACED, "rule", "forks")
USES: dict[str, tuple[str, ...]] = {
    "vineppo": PLACED,
    "spo": (*PLACED, "segment"),
    "treerl": (*DRAWN, "leave_one_out"),
    "tree_grpo": DRAWN,
    "turn_credit": (*DRAWN, "beta"),
    "branpo": (*PLACED, "forks"),
    "gigpo": ("state_weight", "discount"),
    "rtmc": ("prior",),
    "grpo": (),
    "dr_grpo": (),
    "rloo": (),
    "maxrl": (),
}
"""Settings that each estimator reads; those without `which` want no forks, those with neither `rule` nor `forks` say
themselves where."""
SAMPLING = ("base", "share", "weight_clip")
"""Settings of cost_aware beside those of its base."""


class AlgorithmConfig(PolicyGradientConfig):
    """Settings that the chosen estimator does not read are refused unless they are left as they are."""

    kind: Literal["tree"] = "tree"
    """Algorithm."""
    estimator: Literal[
        "vineppo", "treerl", "tree_grpo", "gigpo", "rtmc", "spo", "turn_credit", "branpo", "cost_aware"
    ] = "treerl"
    """How advantages are read off the states of a task (trainers/estimators/)."""
    which: Literal["mixed_successes", "mixed_failures", "mixed", "all"] = "all"
    """Rollouts that are forked: those above the mean of a group with both outcomes; under it; all of such a group;
    all."""
    rule: Literal["entropy", "uniform", "late", "cost_aware", "pass_rate"] = "entropy"
    """Fork-point rule (replay/fork_points.py) of treerl, tree_grpo and turn_credit; branpo forks late, vineppo before
    every decision, spo before every segment."""
    forks: float = Field(2.0, gt=0)
    """Fork points per forked rollout; of branpo times 1 - the group's mean return."""
    alternatives: int = Field(0, ge=0)
    """Branches per fork point, their first actions drawn from the policy (K); 0: as the sources do, vineppo and spo 9,
    the others 2."""
    floor: float = Field(0.0, ge=0, lt=1)
    """A point is skipped when no other action than the one taken has at least this probability."""
    noise: Literal["same", "fresh"] = "fresh"
    """Exogenous randomness of branches."""
    segment: int = Field(5, ge=1)
    """Decisions in a segment of spo."""
    leave_one_out: bool = False
    """Leaves of treerl are normalised first: each minus the mean of the others."""
    beta: float = Field(1.0, ge=0)
    """Weight of turn_credit's shift between the decisions of a rollout."""
    state_weight: float = Field(1.0, ge=0)
    """Weight of gigpo's comparison within a state."""
    discount: float = Field(1.0, gt=0, le=1)
    """Per decision to the end, in gigpo's comparison within a state."""
    prior: float = Field(1.0, ge=0)
    """Visits that the prior of rtmc is worth."""
    base: Literal[
        "treerl",
        "tree_grpo",
        "vineppo",
        "spo",
        "turn_credit",
        "branpo",
        "gigpo",
        "rtmc",
        "grpo",
        "dr_grpo",
        "rloo",
        "maxrl",
    ] = "treerl"
    """The estimator that cost_aware samples from."""
    share: float = Field(0.5, gt=0, le=1)
    """Steps that cost_aware keeps, of those with an advantage."""
    weight_clip: float = Field(5.0, ge=1)
    """Largest weight, one over the probability of being kept, that cost_aware gives."""

    @property
    def reads(self) -> str:
        """The estimator that says what is forked: of cost_aware its base."""
        return self.base if self.estimator == "cost_aware" else self.estimator

    @model_validator(mode="after")
    def _check_used(self) -> Self:
        """What would have no effect is refused."""
        used = {*USES[self.reads], *(SAMPLING if self.estimator == "cost_aware" else ())}
        for name in sorted({*SAMPLING, *(name for names in USES.values() for name in names)}):
            if name not in used and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: {self.reads} does not read it; leave it out")
        return self

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        alone = "which" in USES[self.reads] and self.which == "all"
        if self.group < 2 and not alone:
            raise ValueError('group: a rollout that is alone and not forked (which = "all") is compared with nothing')
        return self
