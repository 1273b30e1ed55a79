"""A family of environments: the one joint between a run and what kind of thing is played in it.

The loop, the run's folder, tracking, checkpoints, actors and commands are the same for all; a family says which tasks
there are, what plays them, what is kept and shown of the experience, and how a policy is judged. A new kind of
environment is one more module with a class of this shape and one more line in `open_family`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from refork.cluster.collector import GroupCollector
from refork.cluster.playing import PlayerSpec
from refork.envs.forkable import BadInput
from refork.envs.simulators import SIMULATORS
from refork.envs.swe.tasks import Split
from refork.replay.experience import ExperienceStore
from refork.trainers.config import JobConfig, algorithms, trainer_config_class
from refork.trainers.loop import Evaluator, Weights
from rich.table import Table

LOGS = "refork/Logs-v0"
"""Logs from no simulator: nothing tells their truth."""
LOGGED = (*SIMULATORS, LOGS)
"""Those that are learnt from by their logs."""
ENVIRONMENTS = ("refork/Chain-v0", "refork/RepairMenu-v0", "refork/SWE-v0", "refork/GraphGame-v0", *LOGGED)


class Report(Protocol):
    """What `refork evaluate` found."""

    def to_json(self) -> list[dict[str, Any]]:
        """A row for each policy; JSON values."""

    def summary(self) -> list[str]:
        """What people want first, a line each; none where the tables are short."""

    def tables(self) -> list[Table]:
        """The same as JSON, for people."""

    def notes(self) -> list[str]:
        """What was left out and why, a line each."""

    def about(self) -> dict[str, Any]:
        """What all rows have in common; JSON values."""

    def plots(self, folder: Path) -> list[Path]:
        """Write pictures, where there are any to draw."""


@dataclass(frozen=True)
class Contest:
    """What `refork evaluate` asks of a family."""

    split: Split
    baselines: bool
    """Judge the untrained policy and the environment's own ones too."""
    forks: int
    """Candidate moves tried at every decision by going back; 0: none."""
    trained: Weights
    untrained: Weights
    history: Sequence[Mapping[str, Any]]
    """Rows of the run's metrics so far."""
    collector: GroupCollector
    say: Callable[[str], None]
    """Told what is being played."""
    checkpoint: Path | None = None
    """Folder of the trained policy, in its run; None: it is from none."""


class Contestant(NamedTuple):
    """A policy that is judged, and how it plays."""

    name: str
    mode: str
    weights: Weights
    version: int
    baseline: str = ""
    """Policy of the environment that plays instead of the weights."""
    how: Any = None
    """As `trainers/loop.py: How`."""


class Family(Protocol):
    """Made from a job, raising BadInput for what the job's text alone could not show."""

    experience: ClassVar[str]
    """What its players leave, as `TrainerConfig.learns_from` names it."""

    def __init__(self, job: JobConfig) -> None: ...

    @property
    def spec(self) -> PlayerSpec:
        """What plays."""

    @property
    def feature_names(self) -> Any:
        """What the network is told about observations (`trainers/make.py`)."""

    def names(self, split: Split) -> list[str]:
        """Tasks of a split, sorted."""

    def store(self, folder: Path) -> ExperienceStore:
        """Keeps the experience of a run in `folder`."""

    def summarise(self, experience: Sequence[Any]) -> dict[str, float]:
        """Metrics of an update; `trajectories`, `steps` and `steps_executed` are always among them."""

    def headline(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """What a person watching wants to know of the latest updates."""

    def evaluator(self, collector: GroupCollector) -> Evaluator:
        """Judges on the validation tasks during training. Raises BadInput when there are none."""

    def judge(self, contest: Contest) -> Report:
        """Play the contest. Raises BadInput for what this family cannot do or has no tasks for."""

    def close(self) -> None:
        """Close what is shared by the environments made."""


def open_family(job: JobConfig) -> Family:
    """The family of `env.id`. Raises BadInput naming those there are, or an algorithm that cannot learn from it."""
    match job.env.id:
        case "refork/Chain-v0" | "refork/RepairMenu-v0":
            from refork.cluster.task_family import TaskFamily

            return _matched(job, TaskFamily)
        case "refork/GraphGame-v0":
            from refork.cluster.game_family import GameFamily

            return _matched(job, GameFamily)
        case logged if logged in LOGGED:
            from refork.cluster.log_family import LogFamily

            return _matched(job, LogFamily)
        case "refork/SWE-v0":
            raise BadInput("env.id: refork/SWE-v0 needs an agent that writes commands; train on refork/RepairMenu-v0")
    near = get_close_matches(job.env.id, ENVIRONMENTS, 1, 0.5)
    guess = f"did you mean {near[0]}?" if near else f"there are: {', '.join(ENVIRONMENTS)}"
    raise BadInput(f"env.id: no environment {job.env.id!r}; {guess}")


def _matched(job: JobConfig, family: type[Family]) -> Family:
    gives = family.experience
    if job.trainer.learns_from in (gives, "any"):
        return family(job)
    fitting = [name for name in algorithms() if trainer_config_class(name).learns_from == gives]
    raise BadInput(
        f"trainer.kind: {job.trainer.kind} learns from {job.trainer.learns_from}, but {job.env.id} gives {gives}; "
        f"choose {' or '.join(fitting)}, or another env.id"
    )
