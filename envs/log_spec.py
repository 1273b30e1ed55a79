"""What a log of decisions holds: the joint between simulators that write logs, what keeps them, and what learns.

Nothing here is inferred from data: the number of actions, their kind and the meaning of an end are declared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from refork.envs.forkable import BadInput, first_fault

KNOWN_KEYS = ConfigDict(extra="forbid")


@with_config(KNOWN_KEYS)
@dataclass(frozen=True)
class ObservationSpec:
    """A vector of named features, or the number of one of `size` states."""

    kind: Literal["vector", "states"]
    size: int
    """Features of a vector, or how many states there are."""
    names: tuple[str, ...] = ()
    """Of the features; of states: of the columns of `LogArrays.state_features`."""
    per_agent: bool = False
    """Each decision maker has its own observation: (R, n, size) in place of (R, size)."""


@with_config(KNOWN_KEYS)
@dataclass(frozen=True)
class ActionSpec:
    """What each of n decision makers chooses at every step; n = 1 for most logs."""

    kind: Literal["discrete", "continuous"]
    sizes: tuple[int, ...]
    """Per decision maker: how many actions there are, or how many dimensions (then equal for all)."""
    names: tuple[str, ...] = ()
    """Of the decision makers, e.g. treatment channels."""
    low: tuple[float, ...] = ()
    """Continuous: least value per dimension, the same for all decision makers."""
    high: tuple[float, ...] = ()

    @property
    def agents(self) -> int:
        return len(self.sizes)

    @property
    def width(self) -> int:
        """The most actions (or dimensions) of any decision maker: the size of a padded last axis."""
        return max(self.sizes)


@with_config(KNOWN_KEYS)
@dataclass(frozen=True)
class LogSpec:
    """All that must be declared about a log."""

    env: str
    """Id of the environment it came from; "" when unknown."""
    observation: ObservationSpec
    action: ActionSpec
    reward: str
    """What the reward is, in words and with its unit."""
    horizon: int = 0
    """Steps after which an episode is cut; 0: no limit."""
    step: str = "step"
    """What one unit of `dt` is, e.g. "4 h"."""
    gamma: float = 1.0
    """Discount under which values of this log are stated."""

    def to_json(self) -> dict[str, Any]:
        """JSON values; `from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LogSpec:
        """Raises BadInput naming the key that is missing, unknown or of another type."""
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            raise BadInput(f"the description of the log: {first_fault(error)}") from error


@dataclass(frozen=True)
class LogArrays:
    """A log as contiguous arrays: N transitions of E episodes, one after the other; R = N + E rows of observations.

    Transition i of episode e was seen in row i + e, and led to row i + e + 1: the row after the last transition of an
    episode is what followed it, also when it was cut.
    """

    spec: LogSpec
    observations: np.ndarray
    """(R, size) or (R, n, size), float32; of states: (R,) or (R, n), int32."""
    actions: np.ndarray
    """(N, n), int64; continuous: (N, n, dimensions), float32."""
    rewards: np.ndarray
    """(N,), float32: of the team."""
    terminated: np.ndarray
    """(N,), bool: the episode truly ended; its future is worth 0."""
    truncated: np.ndarray
    """(N,), bool: it was cut (time limit, discharge of the record); its future is unknown. Termination wins."""
    starts: np.ndarray
    """(E + 1,), int64: first transition of each episode, and N."""
    patients: np.ndarray
    """(E,), int64: number of the patient of each episode; splits are by patient."""
    behaviour: np.ndarray
    """(N,), float32: probability (or density) of the logged joint action under who acted; NaN: unknown."""
    dt: np.ndarray
    """(N,), float32: time to the next row, in `spec.step`; values discount by gamma^dt."""
    allowed: np.ndarray | None = None
    """(R, n, width), bool: actions that can be taken at all; None: all."""
    state_features: np.ndarray | None = None
    """(size, F), float32: what is known of each state, for logs of states."""
    patient_names: tuple[str, ...] = field(default=(), repr=False)
    """Name of patient number k; () for numbers alone."""


@dataclass(frozen=True)
class Limit:
    """A physiological limit on one named observation column, in that column's unit."""

    column: str
    side: Literal["below", "above"]
    """Which side of `limit` is a violation; the limit itself is none."""
    limit: float

    def __str__(self) -> str:
        return f"{self.column} {'<' if self.side == 'below' else '>'} {self.limit:g}"

    def violated(self, values: Any) -> Any:
        """Numbers, an array or a tensor of the column -> bool, of the same shape."""
        return values < self.limit if self.side == "below" else values > self.limit


def column_number(observation: ObservationSpec, column: str) -> int:
    """Where the named column stands; a leading "o:" counts as left out. Raises BadInput naming a missing one."""
    if observation.per_agent:
        raise BadInput(f"column {column!r}: limits are not defined for an observation per decision maker")
    names = [name.removeprefix("o:") for name in observation.names]
    if column.removeprefix("o:") not in names:
        shown = ", ".join(observation.names[:60]) or "no named columns"
        raise BadInput(f"column {column!r} is not in the log's observations; there are: {shown}")
    return names.index(column.removeprefix("o:"))


Act = Callable[[np.ndarray, np.ndarray | None], np.ndarray]
"""A policy over logs: observations (B, ...) and allowed (B, n, width) or None -> probabilities (B, n, width) of
discrete actions (a product over decision makers), or the actions (B, n, dimensions) of continuous ones."""


@dataclass(frozen=True)
class Truth:
    """What a policy is really worth in a simulator: the expected discounted return from the start distribution."""

    value: float
    exact: bool
    """Solved, not sampled."""
    low: float
    """95 % interval of a sampled value; the value itself when exact."""
    high: float

    @classmethod
    def solved(cls, value: float) -> Truth:
        """Known exactly."""
        return cls(value, True, value, value)

    @classmethod
    def sampled(cls, returns: np.ndarray) -> Truth:
        """The mean of independent returns (episodes,), and its 95 % interval."""
        value, half = float(returns.mean()), 1.96 * float(returns.std(ddof=1) / np.sqrt(len(returns)))
        return cls(value, False, value - half, value + half)


class Simulator(Protocol):
    """Writes logs, and knows what a policy learnt from them is worth. Made with its options as keyword arguments."""

    @property
    def spec(self) -> LogSpec: ...

    @property
    def behaviours(self) -> tuple[str, ...]:
        """Names of the policies that logs can be made with."""

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        """A log of whole episodes. Raises BadInput for a name that is not among `behaviours`."""

    def policy(self, behaviour: str) -> Act | None:
        """That policy as a function of what the log shows; None when it sees more than the log does."""

    def truth(self, act: Act, seed: int = 0) -> Truth:
        """What `act` is worth."""

    def behaviour_truth(self, behaviour: str) -> Truth:
        """What that behaviour is worth, also where `policy` can't tell it."""


@runtime_checkable
class WatchesLimits(Protocol):
    """A simulator that also knows how often a policy violates limits on its named columns."""

    def violating_steps(self, act: Act, limits: Sequence[Limit], seed: int = 0) -> list[Truth]:
        """Steps an episode that lead to a violation, a number for each limit. Raises BadInput for a missing column."""
