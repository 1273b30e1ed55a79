"""Which tasks a run has, by split, and how the environment of one is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar, Literal, NamedTuple, Protocol

from refork.envs.chain import ChainEnv
from refork.envs.forkable import BadInput, ForkableEnv
from refork.envs.swe.tasks import Split
from refork.replay.policy import Policy
from refork.trainers.config import EnvConfig


class Baseline(NamedTuple):
    """A policy to compare with; `mode` is how it is played, greedy when it is deterministic."""

    policy: Policy
    mode: Literal["sampled", "greedy"]


class TaskSource(Protocol):
    """The tasks of one kind of environment, and what making environments needs to hold (backend, cache)."""

    feature_names: tuple[str, ...]
    """What the columns of an observation's features mean."""

    def names(self, split: Split) -> list[str]:
        """Tasks of a split, sorted."""

    def package(self, task: str) -> str:
        """What a task is grouped by in tables and held out by."""

    def make(self, task: str) -> ForkableEnv:
        """An environment of that task. Raises BadInput for options it lacks, InfraFailure, UnsupportedHost."""

    def baselines(self) -> dict[str, Baseline]:
        """Policies to compare with, by name."""

    def close(self) -> None:
        """Close what is shared by the environments made."""


class ChainSource:
    """The chain's tasks are numbered; each split has its own range."""

    feature_names = ChainEnv.feature_names
    ranges: ClassVar[dict[Split, range]] = {
        "train": range(1000),
        "validation": range(1000, 1100),
        "held_out": range(1100, 1200),
    }

    def __init__(self, env: EnvConfig) -> None:
        """Raises BadInput for an option that the chain does not have."""
        check_options(env.options, ["length"])
        self._env = env

    def names(self, split: Split) -> list[str]:
        return [f"chain-{i}" for i in self.ranges[split]]

    def package(self, task: str) -> str:
        return "chain"

    def make(self, task: str) -> ForkableEnv:
        return ChainEnv(task, **self._env.options)

    def baselines(self) -> dict[str, Baseline]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


def check_options(options: Mapping[str, object], known: Sequence[str]) -> None:
    """Raises BadInput for an option of the environment that is not known, or is not a whole number from 1."""
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            guess = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
            raise BadInput(f"env.options.{name}: the environment has no such option; {guess}")
        if type(value) is not int or value < 1:
            raise BadInput(f"env.options.{name}: must be a whole number from 1, got {value!r}")


def task_source(env: EnvConfig) -> TaskSource:
    """The source for `env.id`, one of those that are played as tasks. Raises BadInput for another."""
    match env.id:
        case "refork/Chain-v0":
            return ChainSource(env)
        case "refork/RepairMenu-v0":
            from refork.cluster.repair_tasks import RepairSource

            return RepairSource(env)
    raise BadInput(f"env.id: {env.id} is not played as tasks")
