"""Settings of counterfactual conservative Q-learning. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from refork.trainers.joint_config import JointConfig


class AlgorithmConfig(JointConfig):
    """The conservative term sweeps one decision maker at a time, the others as logged."""

    kind: Literal["cfcql"] = "cfcql"
    """Algorithm."""
    temp: float = Field(1.0, ge=0)
    """How much more weight decision makers get that depart further from the log: 0 all the same, large the furthest."""
