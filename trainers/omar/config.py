"""Settings of OMAR. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator
from refork.trainers.cql.config import AlgorithmConfig as Conservative


class AlgorithmConfig(Conservative):
    """Critics of independent CQL; actors follow the gradient and the best action that a search found (arXiv
    2111.11188). Discrete actions are few enough to search them all."""

    takes: ClassVar[tuple[str, ...]] = ("factored discrete", "factored continuous")
    kind: Literal["omar"] = "omar"  # type: ignore[assignment]
    """Algorithm."""
    coefficient: float = Field(0.7, ge=0, le=1)
    """Weight of the best action found; the rest is the policy gradient's."""
    entropy: float = Field(0.01, ge=0)
    """Discrete actions: weight of the actors' entropy."""
    iterations: int = Field(2, ge=1)
    """Continuous actions: rounds of the search."""
    search: int = Field(20, ge=2)
    """Continuous actions: actions sampled in a round."""
    elites: int = Field(5, ge=2)
    """Continuous actions: the best of them, which the next round is drawn around."""

    @model_validator(mode="after")
    def _elites_are_sampled(self) -> AlgorithmConfig:
        if self.elites > self.search:
            raise ValueError(f"elites: at most `search` = {self.search}, got {self.elites}")
        return self
