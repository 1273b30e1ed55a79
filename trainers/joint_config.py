"""Settings shared by conservative Q-learning of a joint value. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from refork.trainers.offline_config import ValueConfig


class JointConfig(ValueConfig):
    """Several decision makers learn one value of what they do together, Q_tot."""

    takes: ClassVar[tuple[str, ...]] = ("factored discrete", "factored continuous")
    alpha: float = Field(1.0, ge=0)
    """Weight of the conservative term."""
    mixer: Literal["monotonic", "central"] = "monotonic"
    """Discrete actions: utilities in a monotonic mixer, or a critic of state and actions with softmax actors.
    Continuous actions always have the critic, twice."""
    entropy: float = Field(0.01, ge=0)
    """Softmax actors: weight of their entropy."""
    candidates: int = Field(10, ge=1)
    """Continuous actions: candidates of each kind (uniform, policy, policy of what followed) in the log-sum."""
    candidate_std: float = Field(0.2, gt=0)
    """Continuous actions: deviation of the policies' candidates, before squashing."""
    target_noise: float = Field(0.2, ge=0)
    """Continuous actions: deviation of the noise on what the target policy does, in half the range of an action."""
    target_clip: float = Field(0.5, ge=0)
    """Continuous actions: that noise stays within."""
    shrink: float = Field(1e-3, ge=0)
    """Continuous actions: weight of the actors' squared outputs before squashing, so that they leave the bounds again.
    """
