"""Settings of Delphic offline learning. Importing this imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from refork.trainers.offline_config import ValueConfig


class AlgorithmConfig(ValueConfig):
    """Conservative double DQN whose targets are lowered where worlds that fit the log equally well disagree."""

    kind: Literal["delphic"] = "delphic"
    """Algorithm."""
    alpha: float = Field(1.0, ge=0)
    """Weight of the conservative term."""
    penalty: float = Field(2.0, ge=0)
    """lambda: the target is lowered by lambda times the delphic uncertainty of the logged action's value, ..."""
    measure: Literal["variance", "deviation"] = "deviation"
    """... its variance, as in the paper, or the standard deviation, whose lambda does not depend on units."""
    adjust: bool = False
    """Also weigh each transition by pi_b(a | s) / pi_b(a | s, z) of the world that explains the log best: what is
    learnt is then adjusted for that world's confounder, where the log alone would be believed. Not in the paper."""
    most_weight: float = Field(10.0, ge=1)
    """Cap of these weights."""
    worlds: tuple[Annotated[str, Field(pattern=r"^(classes|normal)-[1-9]\d*$")], ...] = Field(
        ("classes-1", "classes-2", "classes-2", "classes-3", "normal-3"), min_length=1
    )
    """Confounders to explain the log with: K classes (1: none), or a normal number on K nodes. A repeated one starts
    from other weights."""
    counterfactual: Literal["given_state", "prior"] = "given_state"
    """What a world's value is averaged over: p(z | s), or p(z) in every state."""
    bootstraps: int = Field(3, ge=2)
    """Values within a world, each of resampled episodes."""
    world_hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((64,), min_length=1)
    """Widths of the hidden layers of the worlds' networks."""
    world_epochs: int = Field(30, ge=1)
    """Passes over the fitting episodes, before the first update: once for the worlds, once for their values."""
    world_batch: int = Field(32, ge=1)
    """Episodes a gradient step of the worlds."""
    world_window: int = Field(40, ge=1)
    """Longer episodes are fitted in windows of that many steps."""
    world_learning_rate: float = Field(3e-3, gt=0)
    """Adam's step size for the worlds."""
    held_out: float = Field(0.2, gt=0, lt=1)
    """Share of the patients whose episodes judge whether a world is compatible; no world is fitted to them."""
    tolerance: float = Field(0.25, ge=0)
    """A world is compatible if its held-out log-likelihood a step is within that many nats of the best one's ..."""
    marginal_tolerance: float = Field(0.15, ge=0, le=1)
    """... and the total variation of its action marginal from the logged one is within that, beyond sampling noise."""
