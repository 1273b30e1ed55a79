"""Settings of GRPO and its relatives without forks. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from refork.trainers.config import PolicyGradientConfig


class AlgorithmConfig(PolicyGradientConfig):
    """Outcome-only policy gradient over groups."""

    kind: Literal["grpo"] = "grpo"
    """Algorithm."""
    estimator: Literal["grpo", "dr_grpo", "rloo", "maxrl"] = "grpo"
    """Advantage of a rollout within its group."""
    aggregate: Literal["decisions", "rollouts"] = "decisions"
    """Mean of the loss over all decisions of the update, or over rollouts of their means."""

    @model_validator(mode="after")
    def _check_group(self) -> Self:
        if self.group < 2:
            raise ValueError("group: a rollout alone has nothing to be compared with; give it 2 or more")
        return self
