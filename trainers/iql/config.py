"""Settings of implicit Q-learning. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from refork.trainers.offline_config import ValueConfig


class AlgorithmConfig(ValueConfig):
    """Values from logged actions alone, and a policy cloned with weights exp(beta * advantage); several decision makers
    each learn by themselves from the team's reward."""

    takes: ClassVar[tuple[str, ...]] = ("discrete", "continuous", "factored discrete", "factored continuous")
    kind: Literal["iql"] = "iql"
    """Algorithm."""
    expectile: float = Field(0.7, gt=0, lt=1)
    """0.5: the value of who acted; towards 1: of the best logged action."""
    beta: float = Field(3.0, ge=0)
    """Inverse temperature of the weights; 0: behaviour cloning."""
    largest_weight: float = Field(100.0, gt=0)
    """The weights are cut here."""
    act: Literal["sample", "best"] = "sample"
    """Discrete actions: the learnt policy acts by its probabilities, or by its likeliest action."""
