"""Settings of conservative Q-learning. Importing this imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from refork.trainers.offline_config import ValueConfig


class AlgorithmConfig(ValueConfig):
    """On discrete actions: double DQN with the conservative term."""

    kind: Literal["cql"] = "cql"
    """Algorithm."""
    alpha: float = Field(1.0, ge=0)
    """Weight of the conservative term."""
