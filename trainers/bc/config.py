"""Settings of behaviour cloning. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from refork.trainers.offline_config import OfflineConfig


class AlgorithmConfig(OfflineConfig):
    """The policy under which the logged actions are likeliest; several decision makers are cloned each by itself."""

    takes: ClassVar[tuple[str, ...]] = ("discrete", "continuous", "factored discrete", "factored continuous")
    kind: Literal["bc"] = "bc"
    """Algorithm."""
    policy: Literal["mean", "gaussian"] = "mean"
    """Continuous actions: the squared error of one action, or the likelihood under a squashed Gaussian."""
    shrink: float = Field(0.0, ge=0)
    """Weight of the mean square of the logits (discrete), or of the means before squashing (continuous)."""
