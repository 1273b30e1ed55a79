"""Settings of GRPO and its relatives without forks. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal

from refork.trainers.config import PolicyGradientConfig


class AlgorithmConfig(PolicyGradientConfig):
    """Outcome-only policy gradient over groups."""

    kind: Literal["grpo"] = "grpo"
    """Algorithm."""
    estimator: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    """Advantage of a rollout within its group."""
    aggregate: Literal["decisions", "rollouts"] = "decisions"
    """Mean of the loss over all decisions of the update, or over rollouts of their means."""
