"""Settings of planning on a counted model. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from refork.trainers.offline_config import OfflineConfig


class AlgorithmConfig(OfflineConfig):
    """Value iteration on what was counted in a log of states. It draws nothing: all seeds find the same.

    It takes no gradient steps, so `learning_rate`, `schedule`, `max_grad_norm` and `batch` have no effect.
    With `shrinkage` 0, `prior` 0 and `min_count` 1 it is the count-based lower bound (`penalty`) and the minimum-count
    rule (a greater `min_count`).
    """

    observes: ClassVar[tuple[str, ...]] = ("states",)

    kind: Literal["pvi"] = "pvi"
    """Algorithm."""
    updates: int = Field(10, ge=1)
    """Updates in the run, of `steps_per_update` sweeps each."""
    steps_per_update: int = Field(50, ge=1)
    """Sweeps over all states per update."""
    shrinkage: float | None = Field(None, ge=0)
    """Decisions in a state that an action must be seen for its own mean to count half, against the mean over all
    decisions there; None: chosen by cross-validation over patients."""
    prior: float = Field(5.0, ge=0)
    """Decisions that the mean over the whole log counts for in every state."""
    penalty: float = Field(0.0, ge=0)
    """c of the penalty c / sqrt(n(s, a) + shrinkage)."""
    min_count: int = Field(0, ge=0)
    """Actions seen less often in a state are not taken there, unless all are."""
