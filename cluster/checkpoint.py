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
from refork.cluster.codec import decode, encode

KIND = "refork-training"
VERSION = 1


@dataclass(frozen=True)
class Checkpoint:
    """One that was read. `state` is the tree that was saved, `meta` what was saved beside it (JSON)."""

    path: Path
    step: int
    state: dict[str, Any]
    meta: dict[str, Any]


class CheckpointStore:
    """The checkpoints of one run. One writer at a time (the run folder's lock sees to that)."""

    def __init__(self, folder: Path, keep: int = 2, meta: Callable[[], Mapping[str, Any]] = dict) -> None:
        """`keep`: committed ones kept. `meta`: asked at each save for JSON to store beside the state.

        Clears away what a killed run left half written. Raises OSError for a folder that cannot be written.
        """
        self.folder, self.keep, self._meta = folder, keep, meta
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.name.startswith(".tmp-") or (NAME.match(path.name) and not (path / COMMIT).exists()):
                shutil.rmtree(path)
        self.prune()

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Write and commit; then drop what is older than the newest `keep`. Raises OSError (disk full), having
        left every earlier checkpoint as it was."""
        temporary = self.folder / f".tmp-{os.getpid()}"
        target = self._free_name(step)
        try:
            _write(temporary, step, state, dict(self._meta()))
            os.rename(temporary, target)
            _sync(self.folder)
            _put(target / COMMIT, _digest(target / "meta.json").encode())
            _sync(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            if not (target / COMMIT).exists():
                shutil.rmtree(target, ignore_errors=True)
            raise
        self.prune()

    def newest(self) -> Path | None:
        """The newest committed checkpoint's folder."""
        found = committed(self.folder)
        return found[-1] if found else None

    def load_newest(self) -> Checkpoint | None:
        """Read the newest committed one; None when there is none. Raises CheckpointError when it is damaged."""
        path = self.newest()
        return read(path) if path else None

    def prune(self) -> None:
        """Delete all but the newest `keep` committed ones; COMMIT goes first, so a killed deletion is no checkpoint."""
        for path in committed(self.folder)[: -self.keep]:
            (path / COMMIT).unlink()
            shutil.rmtree(path)

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
        if not (path / name).exists() or _digest(path / name) != digest:
            raise CheckpointError(f"{path}: {name} is damaged (its digest differs); use an earlier checkpoint")
    with np.load(path / "arrays.npz", allow_pickle=False) as arrays:
        state = decode(json.loads((path / "state.json").read_bytes()), dict(arrays))
    return Checkpoint(path, head["step"], state, head["meta"])


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
    if _digest(path / "meta.json") != (path / COMMIT).read_text():
        raise CheckpointError(f"{path}: meta.json is damaged (its digest differs); use an earlier checkpoint")
    return head


def _write(folder: Path, step: int, state: Mapping[str, Any], meta: dict[str, Any]) -> None:
    tree, arrays = encode(state)
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _put(folder / "state.json", json.dumps(tree).encode())
    _put(folder / "arrays.npz", packed.getvalue())
    files = {name: _digest(folder / name) for name in ("state.json", "arrays.npz")}
    head = {"kind": KIND, "version": VERSION, "step": step, "files": files, "meta": meta}
    _put(folder / "meta.json", json.dumps(head, indent=1).encode())
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


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
