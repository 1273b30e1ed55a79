"""Settings of conservative Q-learning. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from refork.trainers.offline_config import ValueConfig


class AlgorithmConfig(ValueConfig):
    """Discrete actions: double DQN with the conservative term; continuous: soft actor-critic with it. Several decision
    makers each learn by themselves from the team's reward (independent CQL)."""

    takes: ClassVar[tuple[str, ...]] = ("discrete", "continuous", "factored discrete", "factored continuous")
    kind: Literal["cql"] = "cql"
    """Algorithm."""
    alpha: float = Field(1.0, ge=0)
    """Weight of the conservative term; with `gap` where it begins."""
    gap: float | None = None
    """Lagrange form: `alpha` moves so that the conservative term is this; left out: `alpha` stays."""
    samples: int = Field(10, ge=1)
    """Continuous actions: how many are drawn uniformly, from the policy and from the next state's policy, each."""
    temperature: float = Field(0.1, gt=0)
    """Continuous actions: where the weight of the policy's entropy begins; it moves to an entropy of -dimensions."""
    soft_target: bool = False
    """Continuous actions: the target counts the next action's entropy, as in soft actor-critic."""

    @model_validator(mode="after")
    def _a_moving_weight_begins_above_zero(self) -> AlgorithmConfig:
        if self.gap is not None and self.alpha == 0:
            raise ValueError("alpha: with `gap` it must begin above 0")
        return self
