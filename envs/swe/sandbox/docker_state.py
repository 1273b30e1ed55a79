"""States of containers on the host: one list of changes a state, and every content once, by its digest.

```
states/ID.json    changes of a state          blobs/DIGEST    bytes of a file or a link's target
owners/LABEL.N/   an empty file for each state that a living backend took
kept/             the same for states that were stored for later
```
A state that is in neither of the last two is removed when a backend closes or sweeps.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateMismatch
from refork.envs.owner import alive, owner
from refork.envs.swe.lock import locked
from refork.envs.swe.sandbox.base import Entry

CONTENT = ("file", "link")


class StateStore:
    """One backend's door to the folder of states, which all processes of a host share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mine = folder / "owners" / f"{owner()}.{uuid.uuid4().hex[:8]}"
        for part in (self._mine, folder / "states", folder / "blobs", folder / "kept"):
            part.mkdir(parents=True, exist_ok=True)
        sweep_states(folder)

    def save(self, state_id: str, changes: Mapping[str, Entry], read: Callable[[list[str]], Iterator[bytes]]) -> None:
        """Keep a state; `read` gives the contents of those of its paths that are not kept yet.

        Raises InfraFailure when the disk is full.
        """
        try:
            with locked(self.folder / "lock", shared=True):
                if not self._state(state_id).exists():
                    self._write_all(state_id, changes, read)
                (self._mine / state_id).touch()
        except OSError as error:
            raise InfraFailure(f"state {state_id[:12]} could not be kept in {self.folder}: {error.strerror}") from error

    def _write_all(
        self, state_id: str, changes: Mapping[str, Entry], read: Callable[[list[str]], Iterator[bytes]]
    ) -> None:
        missing = {e.digest: p for p, e in changes.items() if e.kind in CONTENT and not self._blob(e.digest).exists()}
        for digest, content in zip(missing, read(list(missing.values())), strict=True):
            _write(self._blob(digest), content)
        rows = {path: [e.kind, e.mode, e.digest] for path, e in changes.items()}
        _write(self._state(state_id), json.dumps(rows).encode())

    def load(self, state_id: str) -> dict[str, Entry]:
        """Changes of a state. Raises InfraFailure when it is not kept here."""
        try:
            rows = json.loads(self._state(state_id).read_bytes())
        except FileNotFoundError as error:
            raise InfraFailure(f"state {state_id[:12]} is not kept in {self.folder} (any more)") from error
        return {path: Entry(kind, mode, digest) for path, (kind, mode, digest) in rows.items()}

    def content(self, path: str, digest: str) -> bytes:
        """Bytes of `path`. Raises StateMismatch when they have changed since, InfraFailure when they are gone."""
        try:
            content = self._blob(digest).read_bytes()
        except FileNotFoundError as error:
            raise InfraFailure(f"the content of {path} is not kept in {self.folder} (any more)") from error
        found = hashlib.sha256(content).hexdigest()
        if found != digest:
            raise StateMismatch(f"{path}: content {found[:12]} is kept where the state has {digest[:12]}")
        return content

    def size(self, changes: Mapping[str, Entry]) -> int:
        """Bytes of the contents of a kept state."""
        return sum(self._blob(e.digest).stat().st_size for e in changes.values() if e.kind in CONTENT)

    def keep(self, state_id: str) -> None:
        """Let a state outlive this store."""
        (self.folder / "kept" / state_id).touch()

    def collect(self, live: Collection[str]) -> None:
        """Of the states kept for later, keep only those in `live`."""
        for mark in (self.folder / "kept").iterdir():
            if mark.name not in live:
                mark.unlink(missing_ok=True)
        _prune(self.folder)

    def close(self) -> None:
        """Let go of what this store took."""
        shutil.rmtree(self._mine, ignore_errors=True)
        _prune(self.folder)

    def _state(self, state_id: str) -> Path:
        return self.folder / "states" / f"{state_id}.json"

    def _blob(self, digest: str) -> Path:
        return self.folder / "blobs" / digest


def sweep_states(folder: Path) -> int:
    """Remove what only dead owners had taken; how many of them there were."""
    owners = list((folder / "owners").iterdir()) if (folder / "owners").is_dir() else []
    dead = [path for path in owners if not alive(path.name.partition(".")[0])]
    for path in dead:
        shutil.rmtree(path, ignore_errors=True)
    if dead:
        _prune(folder)
    return len(dead)


def _write(target: Path, content: bytes) -> None:
    """Write a file that appears whole or not at all."""
    part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(content)
        part.rename(target)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def _prune(folder: Path) -> None:
    """Remove states that nobody claims, contents of no state, and halves of what a killed process was writing."""
    with locked(folder / "lock"):
        live = {mark.name for mark in (*(folder / "kept").iterdir(), *(folder / "owners").glob("*/*"))}
        used = set()
        for state in (folder / "states").iterdir():
            if state.name.removesuffix(".json") in live:
                used |= {digest for _, _, digest in json.loads(state.read_bytes()).values()}
            else:
                state.unlink()
        for blob in (folder / "blobs").iterdir():
            if blob.name not in used:
                blob.unlink()


def applied(base: Mapping[str, Entry], changes: Mapping[str, Entry]) -> dict[str, Entry]:
    """The whole manifest of a base with `changes` made to it: the inverse of `manifest.difference`."""
    whole = dict(base)
    for path, entry in changes.items():
        if entry.kind != "dir" and base.get(path, entry).kind == "dir":
            for below in [p for p in whole if p.startswith(path + "/")]:
                del whole[below]
    whole.update(changes)
    return {path: entry for path, entry in whole.items() if entry.kind != "deleted"}
