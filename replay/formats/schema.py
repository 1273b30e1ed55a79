"""What must be declared about a file before it can be read as a log: nothing of it is guessed from the data."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

OPEN = "?"
"""Stands in a schema where something must still be decided."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Columns(_Section):
    """`[columns]` of a table; `*` stands for any text."""

    episode: str
    """Which stay a row belongs to; rows of a stay stand together."""
    patient: str
    """Whose it is: splits are by patient. The same as `episode` when every stay is another patient's."""
    step: str = ""
    """Number of the step, whole and rising in an episode; a number left out is a gap in time."""
    time: str = ""
    """In place of `step`: a time, rising in an episode."""
    observations: list[str]
    actions: list[str]
    reward: str
    terminated: str = ""
    """With `episode.end = "column"`: 1 where the episode truly ended."""
    truncated: str = ""
    """With `episode.end = "column"`: 1 where it was cut."""
    behaviour_probability: str = ""
    """Probability (density) of the logged joint action under who acted; empty cells: unknown."""
    behaviour_log_probability: str = ""
    """In its place: the logarithm of it."""
    allowed: list[str] = Field(default_factory=list)
    """0 or 1 for every action of every decision maker, in their order; none: all are allowed."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Columns:
        if bool(self.step) == bool(self.time):
            raise ValueError("name one of step and time")
        if self.behaviour_probability and self.behaviour_log_probability:
            raise ValueError("name one of behaviour_probability and behaviour_log_probability")
        return self


class Observation(_Section):
    """`[observation]`"""

    kind: Literal["vector", "states"] = "vector"
    size: int = Field(0, ge=0)
    """Of states: how many there are."""
    names: list[str] = Field(default_factory=list)
    """Of the features, for files without column names."""
    units: dict[str, str] = Field(default_factory=dict)
    """Of the features, for the data card; `*` stands for any text."""

    @model_validator(mode="after")
    def _of_its_kind(self) -> Observation:
        for unused in ("size",) if self.kind == "vector" else ("names", "units"):
            if getattr(self, unused):
                raise ValueError(f"{unused} says nothing about observations of kind {self.kind}; leave it out")
        return self

    def units_of(self, features: Sequence[str], where: str) -> dict[str, str]:
        """Feature -> unit, where one is declared. Raises BadInput when one is declared of no feature."""
        found: dict[str, str] = {}
        for pattern, unit in self.units.items():
            named = [name for name in features if names_column(pattern, name)]
            if not named:
                raise BadInput(f"{where}: observation.units: no feature {pattern!r}; {nearest(pattern, features)}")
            found |= dict.fromkeys(named, unit)
        return found


class Action(_Section):
    """`[action]`"""

    kind: Literal["discrete", "continuous"]
    counts: list[int] = Field(default_factory=list)
    """Discrete: how many actions each column has, 0 ... count - 1, whether they occur or not."""
    joint: bool = False
    """Discrete: all columns are one decision maker's; its actions are their combinations, the last column fastest."""
    agents: int = Field(1, ge=1)
    """Continuous: how many decision makers share the columns, equally many each."""
    low: list[float] = Field(default_factory=list)
    """Continuous: least value per dimension."""
    high: list[float] = Field(default_factory=list)
    names: list[str] = Field(default_factory=list)
    """Of the decision makers."""

    @model_validator(mode="after")
    def _complete(self) -> Action:
        if self.kind == "discrete" and (not self.counts or min(self.counts) < 1):
            raise ValueError("counts: discrete actions need how many there are per column, e.g. counts = [5, 5]")
        if self.kind == "continuous" and (not self.low or len(self.low) != len(self.high)):
            raise ValueError("low, high: continuous actions need the bounds per dimension")
        others = ("low", "high", "agents") if self.kind == "discrete" else ("counts", "joint")
        for key in others:
            if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                raise ValueError(f"{key} says nothing about {self.kind} actions; leave it out")
        for low, high in zip(self.low, self.high, strict=True):
            if low > high:
                raise ValueError(f"low, high: found {low:g} above {high:g}, expected bounds in order")
        makers = self.agents if self.kind == "continuous" else 1 if self.joint else len(self.counts)
        if self.names and len(self.names) != makers:
            raise ValueError(f"names: found {len(self.names)}, expected one per decision maker: {makers}")
        return self

    def spec(self, columns: Sequence[str], where: str) -> ActionSpec:
        """For these columns of the file. Raises BadInput when the declaration does not fit them."""
        if self.kind == "continuous":
            return self._continuous(columns, where)
        if len(columns) != len(self.counts):
            raise BadInput(
                f"{where}: action.counts has {len(self.counts)} entries for {len(columns)} action columns "
                f"({', '.join(columns)}); one count per column is expected"
            )
        if not self.joint:
            return ActionSpec("discrete", tuple(self.counts), tuple(self.names or columns))
        return ActionSpec("discrete", (math.prod(self.counts),), tuple(self.names or [" x ".join(columns)]))

    def _continuous(self, columns: Sequence[str], where: str) -> ActionSpec:
        each, rest = divmod(len(columns), self.agents)
        if rest or len(self.low) != each:
            raise BadInput(
                f"{where}: {len(columns)} action columns ({', '.join(columns)}) for {self.agents} decision makers "
                f"need low and high of {len(columns) / self.agents:g} dimensions, got {len(self.low)}"
            )
        names = self.names or (columns if each == 1 else [])
        return ActionSpec("continuous", (each,) * self.agents, tuple(names), tuple(self.low), tuple(self.high))


class Episode(_Section):
    """`[episode]`"""

    end: Literal["terminated", "truncated", "column"]
    """What the last row of an episode means: a true end (its future is worth 0), a cut, or what the columns say."""
    last_row: Literal["decision", "observation"] = "decision"
    """Whether the last row of an episode holds a decision, or only what the last decision led to."""
    horizon: int = Field(0, ge=0)


class Time(_Section):
    """`[time]`"""

    unit: str = "step"
    """What one unit of dt is, in words, e.g. "4 h"."""
    per_unit: float = Field(1.0, gt=0)
    """How much of the step or time column is one unit."""


class Missing(_Section):
    """`[missing]`: observations without a value. Actions, rewards and ids are never missing."""

    policy: Literal["refuse", "forward_fill", "mask"] = "refuse"
    """forward_fill: the last value of the episode; mask: that, and a column m:NAME that is 1 where a value was seen."""
    first: dict[str, float] = Field(default_factory=dict)
    """Value per column where an episode has none yet; `*` stands for any text."""

    @model_validator(mode="after")
    def _used(self) -> Missing:
        if self.first and self.policy == "refuse":
            raise ValueError('first says nothing when missing values are refused; declare policy = "forward_fill"')
        return self


class Reward(_Section):
    """`[reward]`"""

    text: str
    """What the reward is, in words and with its unit."""
    gamma: float = Field(1.0, gt=0, le=1)
    """Discount per unit of time under which values are stated."""


class Schema(_Section):
    """The whole file."""

    env: str = ""
    columns: Columns | None = None
    observation: Observation = Field(default_factory=Observation)
    action: Action
    episode: Episode
    time: Time = Field(default_factory=Time)
    reward: Reward
    missing: Missing = Field(default_factory=Missing)

    def spec(self, features: Sequence[str], actions: Sequence[str], where: str) -> LogSpec:
        """Of a log with these observation and action columns. Raises BadInput where they do not fit."""
        names = tuple(self.observation.names) or tuple(features)
        if len(names) != len(features):
            raise BadInput(f"{where}: observation.names has {len(names)} names for {len(features)} columns")
        observation = ObservationSpec("vector", len(names), names)
        if self.observation.kind == "states":
            if len(features) != 1 or self.observation.size < 1:
                raise BadInput(f"{where}: states need one observation column and observation.size, how many there are")
            observation = ObservationSpec("states", self.observation.size)
        action = self.action.spec(actions, where)
        text, gamma = self.reward.text, self.reward.gamma
        return LogSpec(self.env, observation, action, text, self.episode.horizon, self.time.unit, gamma)


def declared(spec: LogSpec) -> dict[str, dict[str, Any] | str]:
    """The schema of a file, but for its columns, that holds a log of this description: the inverse of `Schema.spec`."""
    seen, action = spec.observation, spec.action
    observation: dict[str, Any] = {"names": list(seen.names)} if seen.kind == "vector" and seen.names else {}
    if seen.kind == "states":
        observation = {"kind": "states", "size": seen.size}
    chosen: dict[str, Any] = {"kind": action.kind}
    if action.kind == "discrete":
        chosen["counts"] = list(action.sizes)
    else:
        chosen |= {"agents": action.agents, "low": list(action.low), "high": list(action.high)}
    if action.names:
        chosen["names"] = list(action.names)
    return {
        "env": spec.env,
        "observation": observation,
        "action": chosen,
        "episode": {"end": "column", "horizon": spec.horizon},
        "time": {"unit": spec.step},
        "reward": {"text": spec.reward, "gamma": spec.gamma},
    }


def schema_beside(path: Path) -> Path:
    """Where the schema of a file is looked for: cohort.csv -> cohort.schema.toml."""
    return path.with_name(f"{path.name.split('.')[0]}.schema.toml")


def names_column(pattern: str, column: str) -> bool:
    """`*` stands for any text, and nothing else is special: names of columns have brackets, e.g. of units."""
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), column, re.DOTALL) is not None


def nearest(name: str, columns: Sequence[str]) -> str:
    """A hint for a name that is none of these columns."""
    near = get_close_matches(name, columns, 1)
    return f"{f'did you mean {near[0]!r}? ' if near else ''}the file has: {', '.join(columns)}"


def matching(patterns: Sequence[str], columns: Sequence[str], key: str, file: str) -> list[str]:
    """Columns that the patterns name, pattern by pattern, in the order of the file. Raises BadInput: none do."""
    found: list[str] = []
    for pattern in patterns:
        names = [c for c in columns if names_column(pattern, c) and c not in found]
        if not names:
            raise BadInput(
                f"{file}: column {pattern!r} is missing (schema: columns.{key}); {nearest(pattern, columns)}"
            )
        found += names
    return found
