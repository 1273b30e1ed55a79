"""The joint all environments share: outcomes, state references, the ForkableEnv protocol, the cache it may be handed.

This module imports nothing but the standard library: `replay`, `trainers` and `cluster` depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pydantic import ValidationError

Obs = Any
Action = Any
Noise = Literal["same", "fresh"]


@dataclass(frozen=True)
class Reward:
    """The episode was judged: `value` is its return (software tasks: 0.0 or 1.0)."""

    value: float


@dataclass(frozen=True)
class InfraError:
    """The machinery failed, not the agent. Never a reward: the pair it belongs to is masked and counted."""

    reason: str


@dataclass(frozen=True)
class Timeout:
    """A deadline of ours passed before there was a judgement; `where` names the step that was running."""

    where: str


Outcome = Reward | InfraError | Timeout


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """One flat JSON object; `outcome_from_json` is its inverse."""
    match outcome:
        case Reward(value):
            return {"kind": "reward", "value": value}
        case InfraError(reason):
            return {"kind": "infra_error", "reason": reason}
        case Timeout(where):
            return {"kind": "timeout", "where": where}


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    """Raises ValueError for a kind that is not an outcome."""
    match data.get("kind"):
        case "reward":
            return Reward(float(data["value"]))
        case "infra_error":
            return InfraError(str(data["reason"]))
        case "timeout":
            return Timeout(str(data["where"]))
    raise ValueError(f"not an outcome: {dict(data)!r}")


@dataclass(frozen=True)
class Spent:
    """What a step took, as `info["spent"]`. It is no part of what happened, so any two are equal."""

    executed: bool = field(compare=False)
    """Whether anything was really executed; False when the cache answered."""
    seconds: float = field(compare=False)
    """Seconds it took, or had taken when the cache learned of it."""


@dataclass(frozen=True)
class StateRef:
    """How a node of the state DAG is restored.

    `state_id` is the content digest (hex); `payload` is what the owner of the state needs to bring it back
    (overlay: names of layers; replay: the action prefix). JSON values only, so it can be stored and sent.
    """

    state_id: str
    payload: Mapping[str, Any] = field(default_factory=dict)


class BadInput(ValueError):
    """What a person gave cannot be used. The message is one line: what is wrong, where, what to do. Exit code 2."""


def first_fault(error: ValidationError) -> str:
    """The first of what pydantic found wrong, for a BadInput: "key.key: message", or the message alone."""
    first = error.errors()[0]
    return ": ".join(part for part in (".".join(map(str, first["loc"])), first["msg"]) if part)


class StateMismatch(RuntimeError):
    """A restored state is not the one its id names; the message gives the first difference."""


class InfraFailure(RuntimeError):
    """The machinery under an environment failed (container died, disk full, image missing, daemon gone).

    Raised by `reset`, `step`, `restore`; the collector turns it into an `InfraError` outcome.
    """


@runtime_checkable
class ForkableEnv(Protocol):
    """A Gymnasium-style environment that can go back. Design section 4."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]: ...

    def step(self, action: Action) -> tuple[Obs, float, bool, bool, dict[str, Any]]: ...

    @property
    def state_id(self) -> str:
        """Content digest of the current state."""

    def snapshot(self) -> StateRef:
        """Cheap, O(change); the environment plays on."""

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Obs:
        """Bring back `ref`; raises StateMismatch when the recomputed id differs."""

    def grade(self) -> Outcome:
        """Judge the current state in a throw-away fork; never disturbs it."""

    def close(self) -> None:
        """Leave nothing behind."""


@dataclass(frozen=True)
class Edge:
    """What `(state id, action)` led to: the observation as bytes, its cost in seconds, the child state."""

    observation: bytes
    cost_s: float
    child_id: str


class ExecutionCache(Protocol):
    """What an environment may be handed to skip executions already known (replay/dag.py holds the real one)."""

    def lookup(self, task: str, state_id: str, action: str) -> Edge | None: ...

    def record(self, task: str, state_id: str, action: str, edge: Edge) -> None: ...
