"""What all trainers of logs share. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from refork.trainers.config import TrainerConfig


class OfflineConfig(TrainerConfig):
    """An update of the run is `steps_per_update` gradient steps on minibatches of the log."""

    learns_from: ClassVar[str] = "logs"
    takes: ClassVar[tuple[str, ...]] = ("discrete",)
    """Actions it learns from: discrete and continuous of one decision maker, "factored discrete" and "factored
    continuous" of several."""
    observes: ClassVar[tuple[str, ...]] = ("vector", "states")
    """Kinds of observations it learns from."""

    tasks_per_update: int = Field(1, ge=1, le=1)
    """A run learns from one log."""
    group: int = Field(1, ge=1, le=1)
    """It is read, not played."""
    updates: int = Field(20, ge=1)
    """Updates in the run."""
    learning_rate: float = Field(3e-4, gt=0)
    """Adam's step size."""
    max_grad_norm: float = Field(10.0, gt=0)
    """Gradient norm clip, of each network and seed by itself."""
    seeds: int = Field(1, ge=1)
    """Trainings stacked in one pass, each with its own initial weights and minibatches; their spread is reported."""
    steps_per_update: int = Field(500, ge=1)
    """Gradient steps per update."""
    batch: int = Field(256, ge=1)
    """Transitions per gradient step and seed."""
    gamma: float | None = Field(None, gt=0, le=1)
    """Discount per unit of the log's dt; None: that under which the log's values are stated."""


class ValueConfig(OfflineConfig):
    """What trainers with a bootstrapped value share."""

    target_every: int = Field(1, ge=1)
    """Gradient steps between moves of the target networks."""
    target_rate: float = Field(0.005, gt=0, le=1)
    """How far a target network moves then; 1: it is copied."""
