"""Settings of guarded model-based learning. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from refork.trainers.config import Config
from refork.trainers.offline_config import ValueConfig


class SafetyLimit(Config):
    """A physiological limit on a named column of the observations, in its own unit."""

    column: str
    """Name of the column, e.g. "o:SpO2"."""
    below: float | None = None
    """A value below this is a violation."""
    above: float | None = None
    """A value above this is a violation. One of the two is given."""
    budget: float | None = Field(None, ge=0, le=1)
    """Largest discounted share of the coming steps in violation; None: what the logged decisions led to."""

    @model_validator(mode="after")
    def _one_side(self) -> SafetyLimit:
        if (self.below is None) == (self.above is None):
            raise ValueError(f"safety limit on {self.column!r}: give one of `below` and `above`")
        return self


class AlgorithmConfig(ValueConfig):
    """Return is maximised in rollouts of a fitted model, under costs for leaving the logged decisions and for harm."""

    takes: ClassVar[tuple[str, ...]] = ("discrete", "continuous")
    kind: Literal["ogsrl"] = "ogsrl"
    """Algorithm."""
    target_rate: float = Field(0.01, gt=0, le=1)
    """How far a target network moves then; 1: it is copied."""
    guardian: bool = True
    """Constrain the policy to the support of the logged decisions; false: the unguarded ablation."""
    ood_percentile: float = Field(5.0, gt=0, lt=100)
    """Percentile of the logged decisions' densities under which a decision is out of support."""
    ood_budget: float | None = Field(None, ge=0, le=1)
    """Largest discounted share of the coming steps out of support; None: that of the logged decisions."""
    centres: int = Field(1000, ge=10)
    """Logged decisions kept as centres of the guardian's kernels."""
    safety: tuple[SafetyLimit, ...] | None = None
    """Limits; None: SpO2 < 92 % and urine < 0.5 mL/kg/h where the log has these columns."""
    cost_horizon: float = Field(10.0, gt=1)
    """Steps over which costs are averaged: they discount by 1 - 1 / cost_horizon a step."""
    dual_rate: float = Field(0.05, gt=0)
    """How fast a multiplier grows with the excess over its budget, a gradient step."""
    dual_gain: float = Field(10.0, ge=0)
    """What the present excess adds to a multiplier at once; damps its swings (PID Lagrangian, arXiv 2007.03964)."""
    dual_max: float = Field(100.0, gt=0)
    """Bound of the multipliers, in standard deviations of the return per unit of cost."""
    rollout: int = Field(2, ge=0)
    """Steps of the model branched from every logged state of a minibatch; 0: logged transitions alone."""
    members: int = Field(3, ge=1)
    """Networks in the model's ensemble, for logs of vectors."""
    model_epochs: int = Field(20, ge=1)
    """Passes over the log in which the ensemble is fitted, on minibatches of at least 64."""
    model_rate: float = Field(1e-3, gt=0)
    """Adam's step size of the ensemble."""
    clinician_weight: float = Field(0.02, ge=0)
    """Weight of the divergence from the cloned clinicians, against the return in its standard deviations."""
