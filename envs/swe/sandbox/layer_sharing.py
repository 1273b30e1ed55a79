"""Layers between the store of this host and depots: found by content id, fetched when missing, published to be kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateRef
from refork.envs.swe.sandbox.layer_archive import layer_id, pack
from refork.envs.swe.sandbox.layer_depot import LayerDepot
from refork.envs.swe.sandbox.layer_unpack import LayerRefused, unpack
from refork.envs.swe.sandbox.layers import LayerStore
from refork.envs.swe.sandbox.owned import SHARED, locked
from refork.envs.swe.sandbox.scan import scan_layer
from refork.envs.swe.sandbox.tables import save_table

log = logging.getLogger("refork.layers")


def locate(store: LayerStore, ref: StateRef, depots: Sequence[LayerDepot]) -> tuple[str, ...]:
    """Names that the layers of `ref` have in this store, newest first; those that are missing are fetched.

    Raises InfraFailure for one that is nowhere, or that no depot gives whole.
    """
    names = ref.payload["layers"]
    ids = ref.payload.get("ids", [None] * len(names))
    return tuple(_located(store, name, content, depots) for name, content in zip(names, ids, strict=True))


def _located(store: LayerStore, name: str, content: str | None, depots: Sequence[LayerDepot]) -> str:
    if content is None:  # a reference of an older version: its layers are on this host or nowhere
        return name
    found = find(store, name, content)
    if found is not None or not depots:
        return found or name
    found = store.index.find(content) or fetch(store, content, depots)
    if found is None:
        places = " or ".join(map(str, depots))
        raise InfraFailure(f"layer {content} is gone: neither in {store.root} nor to be had from {places}")
    return found


def find(store: LayerStore, name: str, content: str) -> str | None:
    """What a layer is called here: `name`, if it was made here, or its shared name. None: it is not here."""
    if (store.root / name).is_dir() and store.content_id(name) == content:
        return name
    shared = SHARED + content
    if (store.private / shared).exists() and (store.root / shared).is_dir():  # in use by this store, so it stays
        return shared
    with locked(store.root):
        if not (store.root / shared).is_dir():
            return None
        (store.private / shared).touch()
    store.count(shared, store.table(shared))
    return shared


def fetch(store: LayerStore, content: str, depots: Sequence[LayerDepot]) -> str | None:
    """Take a layer from the first depot that gives it whole; its name here, None when none has it.

    Raises InfraFailure, of the last depot that failed, when none gave it and one failed.
    """
    failure: InfraFailure | None = None
    for depot in depots:
        try:
            if depot.has(content):
                return receive(store, content, depot.get(content))
        except InfraFailure as error:
            log.warning("from %s: %s", depot, error)
            failure = error
    if failure is not None:
        raise failure
    return None


def receive(store: LayerStore, content: str, chunks: Iterable[bytes]) -> str:
    """Take an archive and have its layer under the shared name that comes back: whole and verified, or not at all.

    Raises LayerRefused when it is not the layer with the id `content`; InfraFailure.
    """
    staging, shared = store.new_folder(), SHARED + content
    try:
        _unpack(store, content, chunks, staging)
        with locked(store.root):
            (store.private / shared).touch()
            if not (store.root / shared).is_dir():
                os.rename(staging, store.root / shared)
    finally:
        if staging.is_dir():  # refused, or another process was faster
            store.drop(staging)
    store.count(shared, store.table(shared))
    return shared


def _unpack(store: LayerStore, content: str, chunks: Iterable[bytes], staging: Path) -> None:
    """The id is that of what now lies on the disk, not of what came."""
    try:
        unpack(chunks, staging, store.give)
        table = scan_layer(staging, {}, None)
    except LayerRefused as error:
        raise LayerRefused(f"layer {content} is refused: {error}") from error
    if (found := layer_id(table)) != content:
        raise LayerRefused(f"layer {content} is refused: what came is layer {found}")
    save_table(staging, table)


def archive(store: LayerStore, name: str) -> Iterator[bytes]:
    """A layer of this host in chunks. Raises InfraFailure, StateMismatch when it is not what was frozen."""
    return pack(store.root / name, store.verify(name))


def publish(store: LayerStore, ref: StateRef, depot: LayerDepot) -> int:
    """Put the layers of `ref` into a depot, those that it lacks; how many. Raises InfraFailure, StateMismatch."""
    names = locate(store, ref, ())
    lacking = [(name, content) for name in names if not depot.has(content := store.content_id(name))]
    for name, content in lacking:
        depot.put(content, archive(store, name))
    return len(lacking)
