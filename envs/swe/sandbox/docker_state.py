"""States of containers on the host: one list of changes a state, and every content once, by its digest."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import Entry

CONTENT = ("file", "link")


class StateStore:
    """Folder of states, shared by all processes of a host; every file appears whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "states").mkdir(parents=True, exist_ok=True)
        (folder / "blobs").mkdir(parents=True, exist_ok=True)

    def __contains__(self, state_id: str) -> bool:
        return self._state(state_id).exists()

    def save(self, state_id: str, changes: Mapping[str, Entry], read: Callable[[list[str]], Iterator[bytes]]) -> None:
        """Keep a state; `read` gives the contents of those of its paths that are not kept yet.

        Raises InfraFailure when the disk is full.
        """
        missing = {e.digest: p for p, e in changes.items() if e.kind in CONTENT and not self._blob(e.digest).exists()}
        try:
            for digest, content in zip(missing, read(list(missing.values())), strict=True):
                self._write(self._blob(digest), content)
            rows = {path: [e.kind, e.mode, e.digest] for path, e in changes.items()}
            self._write(self._state(state_id), json.dumps(rows).encode())
        except OSError as error:
            raise InfraFailure(f"state {state_id[:12]} could not be kept in {self.folder}: {error.strerror}") from error

    def load(self, state_id: str) -> dict[str, Entry]:
        """Changes of a state. Raises InfraFailure when it is not kept here."""
        try:
            rows = json.loads(self._state(state_id).read_bytes())
        except FileNotFoundError as error:
            raise InfraFailure(f"state {state_id[:12]} is not kept in {self.folder} (any more)") from error
        os.utime(self._state(state_id))
        return {path: Entry(kind, mode, digest) for path, (kind, mode, digest) in rows.items()}

    def content(self, digest: str) -> bytes:
        """Bytes of a kept file or link target."""
        try:
            return self._blob(digest).read_bytes()
        except FileNotFoundError as error:
            raise InfraFailure(f"content {digest[:12]} is not kept in {self.folder} (any more)") from error

    def _state(self, state_id: str) -> Path:
        return self.folder / "states" / f"{state_id}.json"

    def _blob(self, digest: str) -> Path:
        return self.folder / "blobs" / digest

    def _write(self, target: Path, content: bytes) -> None:
        part = target.with_name(f"{target.name}.{uuid.uuid4().hex}.part")
        try:
            part.write_bytes(content)
            part.rename(target)
        except OSError:
            part.unlink(missing_ok=True)
            raise


def applied(base: Mapping[str, Entry], changes: Mapping[str, Entry]) -> dict[str, Entry]:
    """The whole manifest of a base with `changes` made to it: the inverse of `manifest.difference`."""
    whole = dict(base)
    for path, entry in changes.items():
        if entry.kind != "dir" and base.get(path, entry).kind == "dir":
            for below in [p for p in whole if p.startswith(path + "/")]:
                del whole[below]
    whole.update(changes)
    return {path: entry for path, entry in whole.items() if entry.kind != "deleted"}
