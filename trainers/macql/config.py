"""Settings of joint conservative Q-learning. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from refork.trainers.joint_config import JointConfig


class AlgorithmConfig(JointConfig):
    """The conservative term sums over joint actions: the baseline that CFCQL is compared with."""

    kind: Literal["macql"] = "macql"
    """Algorithm."""
    joint_actions: int = Field(128, ge=2)
    """Discrete actions: joint ones in the log-sum; all where there are no more, else half uniform, half the policy's.
    """
