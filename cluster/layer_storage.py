"""Sandbox layers in any storage that fsspec knows, for hosts that share no folder and runs that have ended."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from refork.cluster.storage import Storage
from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.layer_archive import CHUNK_BYTES


class StorageDepot:
    """`LAYER/WRITER.tar` in a storage (`LayerDepot`): writers do not meet, a file is there whole or not at all."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def has(self, layer: str) -> bool:
        return self._find(layer) is not None

    def get(self, layer: str) -> Iterator[bytes]:
        name = self._find(layer)
        if name is None:
            raise InfraFailure(f"layer {layer} is not in {self._storage.url}")
        with tempfile.TemporaryDirectory(prefix="refork-layer-") as folder:
            local = Path(folder, "layer.tar")
            try:
                self._storage.get(name, local)
            except Exception as error:  # whatever the protocol's library raises
                raise InfraFailure(f"{self._storage.url}/{name}: cannot be read: {error}") from error
            with local.open("rb") as reader:
                while chunk := reader.read(CHUNK_BYTES):
                    yield chunk

    def put(self, layer: str, chunks: Iterable[bytes]) -> None:
        with tempfile.TemporaryDirectory(prefix="refork-layer-") as folder:
            local = Path(folder, "layer.tar")
            with local.open("wb") as writer:
                writer.writelines(chunks)
            try:
                self._storage.put(local, f"{layer}/{secrets.token_hex(4)}.tar")
            except Exception as error:  # as above
                raise InfraFailure(f"{self._storage.url}: layer {layer} cannot be written: {error}") from error

    def _find(self, layer: str) -> str | None:
        try:
            return next(
                (f"{layer}/{name}" for name in sorted(self._storage.files(layer)) if name.endswith(".tar")), None
            )
        except Exception as error:  # as above
            raise InfraFailure(f"{self._storage.url}: cannot be listed: {error}") from error

    def __str__(self) -> str:
        return self._storage.url
