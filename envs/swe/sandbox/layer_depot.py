"""Places where frozen layers are had by content id, so that a state made on one host can be restored on another."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.layer_archive import CHUNK_BYTES


class LayerDepot(Protocol):
    """Archives of layers (`layer_archive.pack`) by content id. What comes out of one is not believed."""

    def has(self, layer: str) -> bool:
        """Whether it can be had here, as far as is known."""

    def get(self, layer: str) -> Iterator[bytes]:
        """The archive in chunks. Raises InfraFailure when it is not to be had after all."""

    def put(self, layer: str, chunks: Iterable[bytes]) -> None:
        """Take an archive; one that is there already stays. Raises InfraFailure."""


class FolderDepot:
    """A folder that all hosts see, one file a layer: whole or not there, never overwritten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def has(self, layer: str) -> bool:
        return self._path(layer).is_file()

    def get(self, layer: str) -> Iterator[bytes]:
        try:
            with self._path(layer).open("rb") as reader:
                while chunk := reader.read(CHUNK_BYTES):
                    yield chunk
        except OSError as error:
            raise InfraFailure(f"{self._path(layer)}: cannot be read: {error.strerror}") from error

    def put(self, layer: str, chunks: Iterable[bytes]) -> None:
        aside = self.folder / f".{layer}.{secrets.token_hex(4)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with aside.open("xb") as writer:
                    writer.writelines(chunks)
                    writer.flush()
                    os.fsync(writer.fileno())
                if not self.has(layer):
                    aside.rename(self._path(layer))
            finally:
                aside.unlink(missing_ok=True)
        except OSError as error:
            raise InfraFailure(f"{self._path(layer)}: cannot be written: {error.strerror}") from error

    def _path(self, layer: str) -> Path:
        return self.folder / f"{layer}.tar"

    def __str__(self) -> str:
        return str(self.folder)
