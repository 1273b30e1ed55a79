"""Settings of batch-constrained Q-learning. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from refork.trainers.offline_config import ValueConfig


class AlgorithmConfig(ValueConfig):
    """Double DQN among the actions that who acted in the log is likely to take; several decision makers each learn by
    themselves from the team's reward."""

    takes: ClassVar[tuple[str, ...]] = ("discrete", "factored discrete")
    kind: Literal["bcq"] = "bcq"
    """Algorithm."""
    threshold: float = Field(0.3, ge=0, le=1)
    """Least probability of an action as a share of the likeliest one's; 0: plain Q-learning, 1: behaviour cloning."""
    shrink: float = Field(0.01, ge=0)
    """Weight of the mean square of the behaviour's logits."""
