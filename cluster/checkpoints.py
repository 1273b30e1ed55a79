"""The checkpoints of a run as its job wants them: kept, within their room on the disk, and mirrored in a storage."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from refork.cluster.checkpoint import Checkpoint, CheckpointStore
from refork.cluster.checkpoint_room import NoRoom, room_of
from refork.cluster.retention import retention_of
from refork.cluster.run_folder import RunPaths
from refork.cluster.storage import open_storage
from refork.cluster.storage_mirror import Mirror
from refork.cluster.storage_writer import TakenOver
from refork.envs.forkable import InfraFailure
from refork.trainers.config import JobConfig

log = logging.getLogger("refork.training")


class RunCheckpoints:
    """A store that goes on without saving while the disk is full, and tells the storage of what it has committed."""

    def __init__(self, store: CheckpointStore, updates: int, mirror: Mirror | None = None) -> None:
        """`updates`: of the run; its last save may take the disk's reserve."""
        self._store, self._updates, self._mirror = store, updates, mirror
        self._unsaved: tuple[int, str] | None = None
        """The update that could not be saved, and why."""

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """A disk without room is said once, and is no end; any other OSError is."""
        try:
            self._store.save(step, state, last=step >= self._updates)
        except OSError as error:
            if not isinstance(error, NoRoom) and error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._not_saved(step, error)
            return
        if self._unsaved:
            log.warning("there is room again: update %d is saved", step)
        self._unsaved = None
        self._push()

    def save_last(self, step: int, state: Mapping[str, Any]) -> None:
        """What a run that is cut short leaves. Raises OSError."""
        self._store.save(step, state, last=True)
        self._unsaved = None
        self._push(now=True)

    def newest(self) -> Path | None:
        return self._store.newest()

    def load_newest(self) -> Checkpoint | None:
        return self._store.load_newest()

    def _not_saved(self, step: int, error: OSError) -> None:
        if not self._unsaved:
            log.warning(
                "update %d is not saved: %s; training goes on and saves when there is room; until then a stop loses "
                "what is after %s",
                step,
                error,
                _name(self.newest()),
            )
        self._unsaved = (step, str(error))

    def _push(self, now: bool = False) -> None:
        newest = self.newest()
        if self._mirror and newest and newest.name != self._mirror.there:
            self._mirror.push(newest, now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """The last one is tried once more. Raises InfraFailure when a run that ended well left it nowhere safe."""
        if kind is not None and issubclass(kind, TakenOver):
            return
        self._push(now=True)
        if said := self._lost():
            if kind is None:
                raise InfraFailure(said)
            log.warning(said)

    def _lost(self) -> str | None:
        if self._unsaved:
            return f"update {self._unsaved[0]} is not saved: {self._unsaved[1]}; newest: {_name(self.newest())}"
        newest, mirror = self.newest(), self._mirror
        if mirror and newest and mirror.there != newest.name:
            return (
                f"{mirror.storage.url}: the last checkpoint, {newest.name}, is not there: {mirror.why or 'not sent'}; "
                "it is whole in the run folder, and --resume sends it"
            )
        return None


def open_checkpoints(job: JobConfig, folder: RunPaths) -> RunCheckpoints:
    """The checkpoints of the run in `folder`. Raises OSError for a folder that cannot be written, BadInput."""
    retention = retention_of(job, folder.path / "metrics.jsonl")
    mirror = None
    if job.storage:
        storage = open_storage(job.storage, probe=False).below(folder.path.name)
        mirror = Mirror(storage, folder.path, retention)
    store = CheckpointStore(
        folder.checkpoints, retention, lambda: {"job": job.model_dump(mode="json")}, room_of(job.checkpoint)
    )
    return RunCheckpoints(store, job.trainer.updates, mirror)


def _name(path: Path | None) -> str:
    return path.name if path else "the beginning"
