"""What `[env.options]` of a job on graph games may say; every number is checked before anything is played."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from refork.envs.graph_game.generate import COUPLINGS, DEGREE, HORIZON, domain_names
from refork.trainers.config import Config

MOST = 100_000
"""Instances a cell may have in a split: each split numbers its own from a multiple of it."""

LISTS = ("domains", "couplings", "sizes", "evaluate_sizes")

Size = Annotated[int, Field(ge=DEGREE)]


class GameOptions(Config):
    """Which games, by which rules."""

    domains: tuple[str, ...] = Field(domain_names(), min_length=1)
    """Domains of the generated games."""
    couplings: tuple[str, ...] = Field(tuple(COUPLINGS), min_length=1)
    """Couplings of the generated games."""
    sizes: tuple[Size, ...] = Field((20,), min_length=1)
    """Numbers of sites to train on; there are as many supply nodes."""
    evaluate_sizes: tuple[Size, ...] = ()
    """Numbers of sites of the validation and held-out games; empty: `sizes`."""
    instances: int = Field(1000, ge=1, le=MOST)
    """Training games per domain, coupling and size."""
    validation: int = Field(4, ge=0, le=MOST)
    """Validation games per domain, coupling and size."""
    held_out: int = Field(8, ge=0, le=MOST)
    """Held-out games per domain, coupling and size."""
    horizon: int = Field(HORIZON, ge=1)
    """Rounds of a generated game."""
    rewired: float | None = Field(None, ge=0, le=1)
    """Share of rewired coupling pairs; left out: as the coupling's name says."""
    noise: float = Field(0.0, ge=0, lt=1)
    """Demand varies by that share."""
    alignment: Literal["identical", "potential", "general"] = "general"
    """What the operators are paid for: welfare, payoffs with a common potential, or each its own."""
    clearing: Literal["prices", "exact"] = "prices"
    """How a round is cleared: by prices, or by a linear program."""
    batch: int = Field(16, ge=1)
    """Games played in step by one player."""

    @model_validator(mode="before")
    @classmethod
    def _lists(cls, data: Any) -> Any:
        """A flag may give a list as `a,b`, or one value alone."""
        lists = [name for name in LISTS if name in data]
        return {**data, **{name: _as_list(data[name]) for name in lists}}

    @model_validator(mode="after")
    def _known(self) -> Self:
        _check_names("domains", self.domains, domain_names())
        _check_names("couplings", self.couplings, tuple(COUPLINGS))
        for name in LISTS:
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: {next(v for v in values if values.count(v) > 1)!r} is listed twice")
        return self


def _as_list(value: Any) -> Any:
    if isinstance(value, str):
        return value.split(",")
    return [value] if isinstance(value, int) else value


def _check_names(key: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            guess = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
            raise ValueError(f"{key}: no {key.removesuffix('s')} {name!r}; {guess}")
