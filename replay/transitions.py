"""Logs of decisions on disk: one folder of plain arrays, memory-mapped, so that a log may be larger than memory."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput, Outcome, Reward
from refork.envs.log_spec import LogArrays, LogSpec
from refork.replay.seeding import generator

FORMAT = 1
ARRAYS = tuple(f.name for f in fields(LogArrays) if f.name not in ("spec", "patient_names"))
OPTIONAL = ("allowed", "state_features")


@dataclass(frozen=True)
class Transitions(LogArrays):
    """A log that is used: what `LogArrays` holds, and where things are in it."""

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def episodes(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(E,), int64: transitions of each episode."""
        return np.diff(self.starts)

    @cached_property
    def episode(self) -> np.ndarray:
        """(N,), int32: episode of each transition."""
        return np.repeat(np.arange(self.episodes, dtype=np.int32), self.lengths)

    @cached_property
    def elapsed(self) -> np.ndarray:
        """(N,), float64: time from the start of its episode to each transition."""
        before = np.cumsum(self.dt, dtype=np.float64) - self.dt  # over the whole log
        return before - np.repeat(before[self.starts[:-1]], self.lengths)

    def rows(self, transitions: np.ndarray) -> np.ndarray:
        """Row of the observation that each of these transitions was decided on."""
        return transitions + self.episode[transitions]

    def steps_of(self, episodes: np.ndarray) -> np.ndarray:
        """Numbers of the transitions of these episodes, in their order, int64."""
        starts, lengths = self.starts[:-1][episodes], self.lengths[episodes]
        offsets = np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(starts, lengths) + np.arange(lengths.sum()) - offsets

    def subset(self, episodes: np.ndarray) -> Transitions:
        """A copy of these episodes, in that order."""
        steps = self.steps_of(episodes)
        ends = np.cumsum(self.lengths[episodes])
        # (N,) -> (N + E,): after an episode's last row comes the row it led to
        rows = np.insert(self.rows(steps), ends, self.rows(self.starts[1:][episodes] - 1) + 1)
        by_step = ("actions", "rewards", "terminated", "truncated", "behaviour", "dt")
        return Transitions(
            self.spec,
            observations=self.observations[rows],
            starts=np.concatenate([[0], ends]).astype(np.int64),
            patients=self.patients[episodes],
            allowed=None if self.allowed is None else self.allowed[rows],
            state_features=self.state_features,
            patient_names=self.patient_names,
            **{name: getattr(self, name)[steps] for name in by_step},
        )

    def returns(self, gamma: float) -> np.ndarray:
        """(E,), float64: discounted return of each episode, sum of gamma^(time since its start) r."""
        return np.add.reduceat(gamma**self.elapsed * self.rewards, self.starts[:-1])


def of(arrays: LogArrays) -> Transitions:
    """The same arrays as a log that is used."""
    return Transitions(**{f.name: getattr(arrays, f.name) for f in fields(LogArrays)})


def save(log: LogArrays, folder: Path, notes: Mapping[str, Any] | None = None) -> None:
    """Write `log` as `folder`, whole or not at all; an existing log there is replaced. Raises OSError (disk full).

    `notes`: what the card says about how the log was read.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name in ARRAYS:
            if (array := getattr(log, name)) is not None:
                np.save(partial / f"{name}.npy", array)
        publish(partial, folder, log.spec, log.patient_names, notes or {})
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def publish(partial: Path, folder: Path, spec: LogSpec, patient_names: Sequence[str], notes: Mapping[str, Any]) -> None:
    """Make a folder of arrays the log `folder`, in place of one that is there."""
    head = {
        "format": FORMAT,
        "spec": spec.to_json(),
        "patient_names": list(patient_names),
        "notes": dict(notes),
    }
    with (partial / "log.json").open("w") as stream:  # in pieces: there may be a name for every patient
        json.dump(head, stream, indent=1)
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)


def load(folder: Path) -> Transitions:
    """The log in `folder`, memory-mapped: nothing is read before it is used. Raises BadInput when it is not whole.

    Writing to its arrays changes this process's copy, never the file.
    """
    head = _read_head(folder)
    arrays: dict[str, Any] = {}
    for name in ARRAYS:
        path = folder / f"{name}.npy"
        if name in OPTIONAL and not path.exists():
            continue
        try:
            arrays[name] = np.load(path, mmap_mode="c")
        except (OSError, ValueError, EOFError) as error:
            raise BadInput(f"{path}: cannot be read ({error}); write the log again") from error
    return Transitions(LogSpec.from_json(head["spec"]), patient_names=tuple(head["patient_names"]), **arrays)


def _read_head(folder: Path) -> Mapping[str, Any]:
    path = folder / "log.json"
    try:
        head: Mapping[str, Any] = json.loads(path.read_text())
        found = head["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{folder}: not a log ({path.name}: {error}); make one with `refork data`") from error
    if found != FORMAT:
        raise BadInput(f"{path}: format {found!r}, this version reads {FORMAT}; write the log again")
    if missing := {"spec", "patient_names"} - set(head):
        raise BadInput(f"{path}: key {min(missing)!r} is missing; write the log again")
    return head


def notes_of(folder: Path) -> dict[str, Any]:
    """What a log folder says about how it was read."""
    return dict(_read_head(folder).get("notes", {}))


def digest(log: LogArrays) -> str:
    """Hash of what the log says (hex): equal for equal logs, wherever they lie."""
    found = hashlib.sha256(json.dumps([log.spec.to_json(), log.patient_names], sort_keys=True).encode())
    for name in ARRAYS:
        if (array := getattr(log, name)) is not None:
            for start in range(0, max(1, len(array)), 1 << 20):
                found.update(np.ascontiguousarray(array[start : start + (1 << 20)]).tobytes())
    return found.hexdigest()


SPLIT = (0.7, 0.15, 0.15)
"""Shares of the patients to train, validate and hold out, unless others are asked for."""


def split_by_patient(log: LogArrays, fractions: Sequence[float], seed: int) -> list[np.ndarray]:
    """Episodes of each part, ascending; all episodes of a patient are in one part. Parts may be empty."""
    patients = np.unique(log.patients)
    generator(seed, "split").shuffle(patients)
    cuts = np.round(np.cumsum(fractions)[:-1] / np.sum(fractions) * len(patients)).astype(int)
    return [np.flatnonzero(np.isin(log.patients, part)) for part in np.split(patients, cuts)]


@dataclass(frozen=True)
class LoggedExperience:
    """What a trainer of logs is given at every update: the log, and which of its transitions it may learn from."""

    name: str
    log: Transitions
    transitions: np.ndarray
    """Numbers of the transitions, int64."""
    mean_return: float
    """Mean undiscounted return of the episodes behind them."""

    @property
    def outcomes(self) -> Sequence[tuple[str, Outcome]]:
        return [(self.name, Reward(self.mean_return))]
