"""Brings a run from its storage to this machine's `runs`, whole or not at all.

Only the newest committed checkpoint (or one that is named) comes. Trajectories and metrics may be newer than it; a
resumed run drops what is beyond its checkpoint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from refork.cluster.checkpoint_folder import NAME, CheckpointError, age, committed
from refork.cluster.run_folder import RunFolder, is_run_of
from refork.cluster.storage import CHECKPOINTS, Storage, open_storage, reason
from refork.cluster.storage_mirror import TOP, TRAJECTORIES
from refork.envs.forkable import BadInput, InfraFailure

Told = TypeVar("Told")


@dataclass(frozen=True)
class StoredRun:
    """One run in a storage."""

    parent: str
    """URL of the storage that it lies in."""
    name: str
    storage: Storage
    checkpoint: str | None = None
    """The one that the URL named; None: the newest."""

    def job(self, scratch: Path) -> Path:
        """Its `job.toml`, brought into `scratch`. Raises BadInput when it is no run."""
        path = scratch / self.name / "job.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = _told(self.storage, lambda: self.storage.read("job.toml"))
        if content is None:
            raise BadInput(
                f"{self.storage.url}: no such run; {_runs_in(self.storage, open_storage(self.parent, False))}"
            )
        path.write_bytes(content)
        return path

    def has_checkpoint(self) -> bool:
        """Raises BadInput when that cannot be told."""
        return bool(_told(self.storage, self.storage.checkpoints)[0])

    def newest(self) -> str:
        """The checkpoint to bring. Raises BadInput when there is none."""
        whole, _ = _told(self.storage, self.storage.checkpoints)
        if self.checkpoint and self.checkpoint not in whole:
            raise CheckpointError(
                f"{self.storage.url}: no committed checkpoint {self.checkpoint}; there: {_few(whole)}"
            )
        if not whole:
            raise CheckpointError(f"{self.storage.url}: holds no committed checkpoint")
        return self.checkpoint or whole[-1]


def stored_run(url: str) -> StoredRun:
    """The run, or the run's checkpoint, that a URL means; nothing is read yet. Raises BadInput."""
    run, _, last = url.rstrip("/").rpartition("/")
    checkpoint = last if NAME.match(last) else None
    run = run.removesuffix(f"/{CHECKPOINTS}") if checkpoint else url.rstrip("/")
    parent, _, name = run.rpartition("/")
    return StoredRun(parent, name, open_storage(run, probe=False), checkpoint)


def newest_stored(url: str, name: str) -> StoredRun | None:
    """The newest run called `name` in the storage `url` that has a committed checkpoint. Raises BadInput."""
    storage = open_storage(url, probe=False)
    for found in sorted((run for run in _told(storage, storage.folders) if is_run_of(run, name)), reverse=True):
        candidate = StoredRun(url.rstrip("/"), found, storage.below(found))
        if candidate.has_checkpoint():
            return candidate
    return None


def fetch(run: StoredRun, runs: Path) -> Path:
    """The run below `runs`, with the checkpoint asked for; one that is here already gets only what it lacks.

    Raises BadInput (nothing committed there, `runs` cannot be written, the run is running here), InfraFailure.
    """
    wanted, target = run.newest(), runs / run.name
    here = [path.name for path in committed(target / CHECKPOINTS)]
    if wanted in here or (not run.checkpoint and here and age(here[-1]) >= age(wanted)):
        return target
    aside = runs / f".fetch-{run.name}-{os.getpid()}"
    try:
        _clear_killed(runs, run.name)
        aside.mkdir(parents=True)
        _download(run.storage, wanted, aside)
        _settle(aside, target, wanted)
    except OSError as error:
        raise BadInput(f"{runs}: runs cannot be written here: {error.strerror}; choose another --runs") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _clear_killed(runs: Path, name: str) -> None:
    """What a fetch that was killed on this machine has left."""
    for left in runs.glob(f".fetch-{name}-*"):
        if not Path(f"/proc/{left.name.rpartition('-')[2]}").exists():
            shutil.rmtree(left)


def _download(storage: Storage, checkpoint: str, into: Path) -> None:
    try:
        names = [name for name in storage.files() if _is_wanted(name, checkpoint)]
        for name in names:
            storage.get(name, into / name)
    except Exception as error:
        raise InfraFailure(f"{storage.url}: cannot be fetched: {reason(error)}; try again") from error


def _is_wanted(name: str, checkpoint: str) -> bool:
    return name in TOP or name.startswith((f"{TRAJECTORIES}/", f"{CHECKPOINTS}/{checkpoint}/"))


def _settle(aside: Path, target: Path, checkpoint: str) -> None:
    """In one step where there is no such run yet; else the checkpoint last, as nothing counts without it."""
    if not target.exists():
        os.rename(aside, target)
        return
    with RunFolder(target):
        for path in sorted(p for p in aside.rglob("*") if p.is_file() and CHECKPOINTS not in p.parts):
            place = target / path.relative_to(aside)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, place)
        (target / CHECKPOINTS).mkdir(exist_ok=True)
        os.rename(aside / CHECKPOINTS / checkpoint, target / CHECKPOINTS / checkpoint)


def _runs_in(missing: Storage, parent: Storage) -> str:
    inside = _told(missing, missing.folders)
    found = [f"{missing.url}/{name}" for name in inside if missing.below(name).read("job.toml") is not None]
    return f"runs: {_few(found or _told(parent, parent.folders))}"


def _few(names: list[str]) -> str:
    return ", ".join(names[-5:]) or "none"


def _told(storage: Storage, ask: Callable[[], Told]) -> Told:
    """The answer. Raises BadInput with what the protocol's library said."""
    try:
        return ask()
    except Exception as error:
        raise BadInput(f"{storage.url}: cannot be read: {reason(error)}") from error
