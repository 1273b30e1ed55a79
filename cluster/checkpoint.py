"""Committed checkpoints: written aside, synced, renamed, and only then marked by a COMMIT file.

Whatever is killed at whatever point, the newest committed checkpoint stays whole; what lacks COMMIT is skipped and
cleared away. The old is deleted only after the new one is safe.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.cluster.checkpoint_folder import COMMIT, NAME, CheckpointError, committed
from refork.cluster.checkpoint_room import NoRoom, Room
from refork.cluster.codec import decode, encode
from refork.cluster.retention import Retention

KIND = "refork-training"
VERSION = 2


@dataclass(frozen=True)
class Checkpoint:
    """One that was read. `state` is the tree that was saved, `meta` what was saved beside it (JSON)."""

    path: Path
    step: int
    state: dict[str, Any]
    meta: dict[str, Any]


class CheckpointStore:
    """The checkpoints of one run. One writer at a time (the run folder's lock sees to that)."""

    def __init__(
        self,
        folder: Path,
        retention: Retention | None = None,
        meta: Callable[[], Mapping[str, Any]] = dict,
        room: Room | None = None,
    ) -> None:
        """`retention`: which committed ones are kept. `meta`: asked at each save for JSON to store beside the state.

        Clears away what a killed run left half written. Raises OSError for a folder that cannot be written.
        """
        self.folder, self.retention, self._meta = folder, retention or Retention(), meta
        self.room = room or Room()
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name.startswith(".tmp-") or (NAME.match(path.name) and not (path / COMMIT).exists()):
                shutil.rmtree(path)
        self.prune()

    def save(self, step: int, state: Mapping[str, Any], last: bool = False) -> None:
        """Write and commit; then drop what is no longer kept. `last`: of the run, and so may take the disk's reserve.

        Raises OSError (disk full; NoRoom before anything is written), having left the newest checkpoint as it was.
        """
        temporary = self.folder / f".tmp-{os.getpid()}"
        files = _pack(step, state, dict(self._meta()))
        self._make_room(sum(map(len, files.values())), last)
        target = self._free_name(step)
        try:
            _write(temporary, files)
            os.rename(temporary, target)
            _sync(self.folder)
            _put(target / COMMIT, _digest(files["meta.json"]).encode())
            _sync(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            if not (target / COMMIT).exists():
                shutil.rmtree(target, ignore_errors=True)
            raise
        self.prune()

    def _make_room(self, need: int, last: bool) -> None:
        """Delete older ones until `need` bytes fit; none when that would not be enough. Raises NoRoom."""
        found = committed(self.folder)
        given_up = [self.folder / name for name in self.retention.given_up([path.name for path in found])]
        if lack := self.room.lack(self.folder, need, given_up, last):
            raise NoRoom(lack)
        while given_up and self.room.lack(self.folder, need, last=last):
            _drop(given_up.pop(0))

    def newest(self) -> Path | None:
        """The newest committed checkpoint's folder."""
        found = committed(self.folder)
        return found[-1] if found else None

    def load_newest(self) -> Checkpoint | None:
        """Read the newest committed one; None when there is none. Raises CheckpointError when it is damaged."""
        path = self.newest()
        return read(path) if path else None

    def prune(self) -> None:
        """Delete all committed ones that are not kept."""
        found = committed(self.folder)
        kept = self.retention.kept([path.name for path in found])
        for path in found:
            if path.name not in kept:
                _drop(path)

    def _free_name(self, step: int) -> Path:
        again = [int(m[2] or 0) for p in self.folder.iterdir() if (m := NAME.match(p.name)) and int(m[1]) == step]
        return self.folder / (f"step-{step:08d}" + (f".{max(again) + 1}" if again else ""))


def read(path: Path) -> Checkpoint:
    """Read and verify. Raises CheckpointError: not there, no COMMIT, another kind or version, damaged."""
    if not path.is_dir():
        raise CheckpointError(f"{path}: no such checkpoint")
    if not (path / COMMIT).exists():
        raise CheckpointError(f"{path}: has no {COMMIT} file: it was never finished; use an earlier checkpoint")
    head = _head(path)
    for name, digest in head["files"].items():
        if not (path / name).exists() or _digest((path / name).read_bytes()) != digest:
            raise CheckpointError(f"{path}: {name} is damaged (its digest differs); use an earlier checkpoint")
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        state = decode(json.loads((path / "state.json").read_bytes()), dict(arrays))
    return Checkpoint(path, head["step"], state, head["meta"])


def _drop(path: Path) -> None:
    """COMMIT goes first, so that a killed deletion leaves no checkpoint."""
    (path / COMMIT).unlink()
    shutil.rmtree(path)


def _head(path: Path) -> dict[str, Any]:
    try:
        head = json.loads((path / "meta.json").read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: meta.json cannot be read; this is no checkpoint of refork") from error
    if not isinstance(head, dict) or head.get("kind") != KIND:
        kind = head.get("kind") if isinstance(head, dict) else type(head).__name__
        raise CheckpointError(f"{path}: is of kind {kind!r}, not {KIND!r}; give a checkpoint of a training run")
    if head.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: has format version {head.get('version')!r}, this refork reads {VERSION}; "
            "use the refork that wrote it"
        )
    if _digest((path / "meta.json").read_bytes()) != (path / COMMIT).read_text():
        raise CheckpointError(f"{path}: meta.json is damaged (its digest differs); use an earlier checkpoint")
    return head


def _pack(step: int, state: Mapping[str, Any], meta: dict[str, Any]) -> dict[str, bytes]:
    """The files of a checkpoint but for COMMIT."""
    tree, arrays = encode(state)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    files = {"state.json": json.dumps(tree).encode(), "arrays.npz": packed.getvalue()}
    digests = {name: _digest(content) for name, content in files.items()}
    head = {"kind": KIND, "version": VERSION, "step": step, "files": digests, "meta": meta}
    return {**files, "meta.json": json.dumps(head, indent=1).encode()}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        _put(folder / name, content)
    _sync(folder)


def _put(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make the folder's entries durable, not only the files' bytes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
