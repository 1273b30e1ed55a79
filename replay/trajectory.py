"""What one rollout was: its decisions, its outcome, and, for a branch, where it left the rollout it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from refork.envs.forkable import Outcome, Reward, StateRef


@dataclass(frozen=True)
class Decision:
    """One action taken by a policy in a state."""

    state_id: str
    observation: Any
    """What the policy saw: numpy arrays in a dict, with a boolean `mask` over actions."""
    action: int
    log_prob: float
    """log pi(action | observation) under the behaviour policy."""
    probability: float
    """pi(action | observation), kept because (1 - p) weighs the differential."""
    entropy: float
    """Entropy of pi(. | observation), nats."""
    ref: StateRef | None = None
    """How to restore the state before this decision; None when no snapshot was taken."""


@dataclass(frozen=True)
class Origin:
    """A branch left `parent` before its decision `step`; it replays the taken action iff `same_action`."""

    parent: str
    step: int
    same_action: bool = False


@dataclass(frozen=True)
class Trajectory:
    """A main rollout (origin None; decisions from the start) or a branch (from the fork on, prefix left out)."""

    task: str
    episode: int
    attempt: int
    decisions: tuple[Decision, ...]
    outcome: Outcome
    origin: Origin | None = None
    steps_executed: int = 0
    """Environment steps really executed, not answered by the execution cache."""
    seconds: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Unique within a run: task, episode, attempt."""
        return f"{self.task}/{self.episode}/{self.attempt}"

    @property
    def steps(self) -> int:
        """Environment steps asked for."""
        return len(self.decisions)

    @property
    def value(self) -> float | None:
        """The return, or None where there was no judgement (infra error, timeout)."""
        return self.outcome.value if isinstance(self.outcome, Reward) else None


@dataclass(frozen=True)
class Fork:
    """One decision of a main rollout, gone back to: keys of the branches that took another action or the same."""

    parent: str
    step: int
    selection: float
    """Probability of one draw of the fork-point rule picking this step."""
    alternatives: tuple[str, ...]
    replays: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskExperience:
    """All that one task group gave: main rollouts, forks of them, the branches played from those."""

    task: str
    episode: int
    mains: tuple[Trajectory, ...]
    branches: tuple[Trajectory, ...] = ()
    forks: tuple[Fork, ...] = ()
    skipped: int = 0
    """Fork points left out because no other action had probability above the floor."""
    version: int = 0
    """Version of the weights that acted."""

    @property
    def outcomes(self) -> list[tuple[str, Outcome]]:
        """Task and outcome of every main rollout."""
        return [(self.task, t.outcome) for t in self.mains]

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Every continuation played: all of it counts against the budget."""
        return self.mains + self.branches

    @property
    def steps(self) -> int:
        """Environment steps asked for, branches included."""
        return sum(t.steps for t in self.trajectories)

    @property
    def steps_executed(self) -> int:
        """Environment steps really executed."""
        return sum(t.steps_executed for t in self.trajectories)

    @property
    def unjudged(self) -> int:
        """Trajectories without a reward; each is masked."""
        return sum(t.value is None for t in self.trajectories)
