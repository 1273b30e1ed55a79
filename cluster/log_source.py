"""Where a run's log comes from: a folder of one, or a simulator that writes it; and how it is split by patient."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator
from refork.agents.q_networks import LogShape
from refork.cluster.env_options import env_options
from refork.cluster.family import LOGS
from refork.cluster.log_cache import converted
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogSpec, Simulator
from refork.envs.simulators import SIMULATORS, open_simulator
from refork.envs.swe.tasks import Split
from refork.replay.transitions import SPLIT, Transitions, digest, load, of, split_by_patient
from refork.replay.validation import check_learnable
from refork.trainers.config import Config, EnvConfig

NOTE = "log.json"
"""Where a run notes which log it began with, in the folder of its experience."""
SPLITS: tuple[Split, ...] = ("train", "validation", "held_out")


class LogOptions(Config):
    """`[env.options]` of logs; what is not here goes to the simulator."""

    behaviour: str = ""
    """Who acts in a log that the simulator writes; "": its first behaviour."""
    episodes: int = Field(2500, ge=1)
    """Episodes of a log that the simulator writes."""
    log_seed: int = Field(0, ge=0)
    """Seed of a log that the simulator writes, and of the split."""
    fractions: tuple[float, float, float] = SPLIT
    """Shares of the patients to train, validate and hold out."""
    schema_file: Path | None = None
    """Declares what is in a file that `env.tasks` names; None: NAME.schema.toml beside it."""
    simulator: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the simulator."""

    @model_validator(mode="after")
    def _fractions_are_shares(self) -> LogOptions:
        if min(self.fractions) < 0 or self.fractions[0] <= 0:
            raise ValueError(f"fractions: train, validation, held_out must be >= 0, train > 0, got {self.fractions}")
        return self


@dataclass(frozen=True)
class LogSource:
    """The log of a job, its split, and the simulator that knows the truth, if there is one."""

    env: EnvConfig

    @cached_property
    def options(self) -> LogOptions:
        return env_options(LogOptions, self.env.options)

    @cached_property
    def simulator(self) -> Simulator | None:
        return open_simulator(self.env.id, self.options.simulator) if self.env.id in SIMULATORS else None

    @cached_property
    def log(self) -> Transitions:
        """Raises BadInput when there is none, or it is of another environment."""
        if self.env.tasks is not None:
            return self._loaded(self.env.tasks)
        if self.simulator is None:
            raise BadInput("env.tasks: name the file or folder of a log; `refork data check` says whether it is sound")
        behaviour = self.options.behaviour or self.simulator.behaviours[0]
        return of(self.simulator.log(behaviour, self.options.episodes, self.options.log_seed))

    def _loaded(self, path: Path) -> Transitions:
        log = load(converted(path, self.options.schema_file))
        if self.simulator is not None and log.spec.env != self.env.id:
            raise BadInput(
                f"env.tasks: {path} is a log of {log.spec.env or 'an unknown environment'}, not of {self.env.id}; "
                f"set env.id to it, or to {LOGS}"
            )
        return log

    @property
    def spec(self) -> LogSpec:
        return self.log.spec

    @cached_property
    def splits(self) -> Mapping[Split, np.ndarray]:
        """Episodes of each part."""
        parts = split_by_patient(self.log, self.options.fractions, self.options.log_seed)
        return dict(zip(SPLITS, parts, strict=True))

    def transitions(self, split: Split) -> np.ndarray:
        """Numbers of the transitions of a part."""
        return self.log.steps_of(self.splits[split])

    def check_learnable(self) -> None:
        """Raises BadInput when nothing can be learnt from the training part."""
        check_learnable(self.log, self.transitions("train"), "the training part of the log")

    @cached_property
    def shape(self) -> LogShape:
        """What networks are told, measured on the training part alone."""
        log = self.log
        if log.spec.observation.kind == "states":
            seen = log.state_features
            if seen is None:
                return LogShape(log.spec, np.zeros(0, np.float32), np.ones(0, np.float32))
        else:
            rows = log.rows(self.transitions("train"))
            seen = np.asarray(log.observations[_thinned(rows)]).reshape(-1, log.spec.observation.size)
        shift, scale = seen.mean(0, np.float64), seen.std(0, dtype=np.float64)
        scale = np.where(scale > 1e-6, scale, 1.0)
        return LogShape(log.spec, shift.astype(np.float32), scale.astype(np.float32), log.state_features)


def check_same_log(source: LogSource, checkpoint: Path) -> None:
    """`checkpoint`: folder of one, in its run. Raises BadInput when the log is not the one that the run learnt from."""
    check_noted(source, checkpoint.parent.parent / "trajectories" / NOTE)


def check_noted(source: LogSource, note: Path) -> None:
    """Raises BadInput when the log is not the one whose content was noted in that file; without one, all are alike."""
    if note.exists() and json.loads(note.read_text())["content"] != digest(source.log):
        raise BadInput(f"{note}: the run began with a log of other content; restore that log, or start a new run")


def _thinned(rows: np.ndarray, most: int = 1_000_000) -> np.ndarray:
    """Evenly spaced, ascending: enough for a mean, without reading a log larger than memory."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
