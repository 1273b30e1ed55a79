"""The family in which nothing is played: a log is read, and what was learnt from it is judged."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from refork.cluster.collector import GroupCollector
from refork.cluster.family import Contest
from refork.cluster.log_judgement import LogEvaluator, judge_log
from refork.cluster.log_report import LogReport
from refork.cluster.log_source import NOTE, SPLITS, LogSource, check_noted, check_same_log
from refork.envs.forkable import BadInput
from refork.envs.swe.tasks import Split
from refork.replay.data_card import few_held_out
from refork.replay.player import GroupRequest
from refork.replay.transitions import LoggedExperience, digest
from refork.trainers.config import JobConfig


class LogFamily:
    """Judged by estimates from the log, and by the truth where a simulator knows it."""

    experience: ClassVar[str] = "logs"

    def __init__(self, job: JobConfig) -> None:
        if job.rollout.actors:
            raise BadInput(f"rollout.actors: a log is read, not played: set it to 0, got {job.rollout.actors}")
        self._job = job
        self.source = LogSource(job.env)
        self.spec = LogPlayerSpec(self.source)

    @property
    def feature_names(self) -> Any:
        return self.source.shape

    def names(self, split: Split) -> list[str]:
        """One "task" a part of the log, unless it is empty. Raises BadInput when there is nothing to train on."""
        source = self.source
        if split == "train":
            source.check_learnable()
            share = source.options.fractions[SPLITS.index("held_out")]
            if few := few_held_out(source.log.episodes, len(source.splits["held_out"]), share):
                warnings.warn(few, stacklevel=2)
        return [split] if len(self.source.splits[split]) else []

    def store(self, folder: Path) -> LogNote:
        return LogNote(folder, self.source)

    def summarise(self, experience: Sequence[Any]) -> dict[str, float]:
        """Nothing is played; the trainer counts the transitions it learnt from."""
        return {"trajectories": 0.0, "steps": 0.0, "steps_executed": 0.0}

    def headline(self, rows: Sequence[Mapping[str, float]]) -> list[str]:
        """Latest loss and validation value; which costs are above what they may be."""
        names = [name for name in (rows[-1] if rows else {}) if name.endswith("/total")]
        parts = [f"{name.removeprefix('loss/').removesuffix('/total')} loss {rows[-1][name]:.4g}" for name in names]
        if judged := [row["validation/true_value"] for row in rows if "validation/true_value" in row]:
            parts.append(f"true value {judged[-1]:.4f}")
        elif judged := [row["validation/fqe"] for row in rows if "validation/fqe" in row]:
            parts.append(f"value {judged[-1]:.4f} by FQE")
        return parts + _over_budget(rows[-1] if rows else {})

    def evaluator(self, collector: GroupCollector) -> LogEvaluator:
        return LogEvaluator(self.source, self._job.trainer.seeds)  # type: ignore[attr-defined]

    def judge(self, contest: Contest) -> LogReport:
        """The trained policies of every seed; with `baselines` those of the simulator.

        Raises BadInput when the log is not the one that the run began with.
        """
        if contest.forks:
            raise BadInput("--forks: a log cannot be gone back in; leave it out")
        if contest.checkpoint is not None:
            check_same_log(self.source, contest.checkpoint)
        return judge_log(self.source, self._job, contest)

    def close(self) -> None:
        """Nothing is held."""


def _over_budget(row: Mapping[str, float]) -> list[str]:
    costs = [name.removeprefix("cost/") for name in row if name.startswith("cost/")]
    over = [name for name in costs if row[f"cost/{name}"] > row[f"budget/{name}"]]
    told = (f"{name} {row[f'cost/{name}']:.3f} of {row[f'budget/{name}']:.3f}" for name in over)
    return ["over budget: " + ", ".join(told)] if over else []


class LogNote:
    """Stands where a run keeps its experience: which log was read, not the log again."""

    def __init__(self, folder: Path, source: LogSource) -> None:
        self.folder, self._source = folder, source

    def write(self, update: int, experience: Sequence[Any]) -> Path:
        """Once: where the log lies (or how it was made) and its content hash."""
        path = self.folder / NOTE
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            note = {"env": self._source.env.model_dump(mode="json"), "content": digest(self._source.log)}
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(note, indent=1) + "\n")
            os.replace(partial, path)
        return path

    def drop_from(self, update: int) -> None:
        """Raises BadInput when a resumed run would read another log than the one it began with."""
        check_noted(self._source, self.folder / NOTE)


@dataclass(frozen=True)
class LogUnit:
    """One part of the log."""

    task: str


@dataclass(frozen=True)
class LogPlayerSpec:
    """Reads the log in this process."""

    source: LogSource

    def player(self) -> type[LogPlayer]:
        return LogPlayer

    def units(self, requests: Sequence[GroupRequest]) -> list[LogUnit]:
        return [LogUnit(request.task) for request in requests]

    def lost(self, unit: LogUnit, reason: str) -> Any:
        """Never: there are no actors."""
        raise AssertionError(f"{unit.task}: {reason}")


class LogPlayer:
    """Hands out the parts of the log, the same object every time."""

    def __init__(self, spec: LogPlayerSpec) -> None:
        self._source = spec.source
        self._read: dict[str, LoggedExperience] = {}

    def play(
        self, unit: LogUnit, weights: Mapping[str, np.ndarray], version: int, how: Any = None, baseline: str = ""
    ) -> LoggedExperience:
        """The part; nothing acts."""
        if unit.task not in self._read:
            episodes = self._source.splits[unit.task]  # type: ignore[index]
            returns = self._source.log.returns(1.0)[episodes]
            steps = self._source.log.steps_of(episodes)
            self._read[unit.task] = LoggedExperience(unit.task, self._source.log, steps, float(returns.mean()))
        return self._read[unit.task]

    def pid(self) -> int:
        """The process this one lives in."""
        return os.getpid()

    def close(self) -> None:
        """Nothing is held."""
