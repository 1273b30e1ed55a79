"""A run's folder: `job.toml` as resolved, `metrics.jsonl`, `checkpoints/`, `trajectories/`, `wandb/`, and its lock."""

from __future__ import annotations

import fcntl
import os
import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from refork.cluster.checkpoint_folder import committed
from refork.cluster.toml import dumps
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig

_STAMP = re.compile(r"-\d{8}-\d{6}(\.\d+)?\Z")


class RunPaths:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def trajectories(self) -> Path:
        return self.path / "trajectories"

    def close(self) -> None:
        """Nothing is held."""


class RunFolder(RunPaths):
    """One run on disk, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        """Take hold of an existing folder. Raises BadInput when another process has it or it cannot be written."""
        super().__init__(path)
        try:
            self._lock = (path / "lock").open("a+")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"{path}: process {(path / 'lock').read_text().strip()} is running this run") from error
        except OSError as error:
            raise BadInput(f"{path}: cannot be written: {error.strerror}; choose another --runs") from error
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create(job: JobConfig, taken: Callable[[str], bool] = lambda _name: False) -> RunFolder:
    """A new folder `<runs>/<name>-<date>-<time>` holding the resolved job; no name that is `taken`. Raises BadInput."""
    stem = f"{job.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        job.runs.mkdir(parents=True, exist_ok=True)
        path = _make(job.runs, stem, taken)
        (path / "job.toml").write_text(dumps(job.model_dump(mode="json")), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{job.runs}: runs cannot be written here: {error.strerror}; choose another --runs") from error
    return RunFolder(path)


def _make(runs: Path, stem: str, taken: Callable[[str], bool]) -> Path:
    for again in range(1, 1000):
        path = runs / (stem if again == 1 else f"{stem}.{again}")
        if taken(path.name):
            continue
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise BadInput(f"{runs}: a thousand runs named {stem}; choose another --name")


def is_run_of(folder: str, name: str) -> bool:
    """Whether a folder's name is that of a run called `name`."""
    return folder.startswith(name) and bool(_STAMP.fullmatch(folder.removeprefix(name)))


def newest_run(runs: Path, name: str) -> Path:
    """The newest run called `name` that has a committed checkpoint. Raises BadInput."""
    found = [p for p in runs.iterdir() if is_run_of(p.name, name)] if runs.is_dir() else []
    if not found:
        raise BadInput(f"{runs}: no run named {name} to resume; start it without --resume")
    ready = [p for p in found if committed(p / "checkpoints")]
    if not ready:
        raise BadInput(f"{max(found)}: holds no committed checkpoint to resume; start again without --resume")
    return max(ready, key=lambda p: p.name)


def saved_job(path: Path) -> dict[str, Any]:
    """The resolved job of a run, as data. Raises BadInput when it is no run's folder."""
    try:
        return tomllib.loads((path / "job.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path}: not the folder of a run: job.toml cannot be read") from error
