"""A frozen layer as one archive that any host can take: the same layer gives the same bytes everywhere.

The archive is a plain tar (pax), its entries sorted by path, without owners or times. What tar has no word for is in
two pax records: `REFORK.kind` (deleted, socket) on an empty file, and `REFORK.opaque` on a folder that hides the one
below it; so reading one takes no right to make devices. Nothing is compressed: what is unpacked cannot grow.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import Kind
from refork.envs.swe.sandbox.scan import Row, Table, host_name
from refork.envs.swe.sandbox.trees import opened_up

CHUNK_BYTES = 4 << 20
"""Of an archive on its way, at most."""
BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
KIND, OPAQUE_MARK = b"REFORK.kind", b"REFORK.opaque"
TYPES: Mapping[Kind, bytes] = {
    "file": tarfile.REGTYPE,
    "dir": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "fifo": tarfile.FIFOTYPE,
    "socket": tarfile.REGTYPE,
    "deleted": tarfile.REGTYPE,
}
MARKED: tuple[Kind, ...] = ("deleted", "socket")
"""Kinds that are empty files to other programs."""
_READ_BYTES = 1 << 20


def layer_id(table: Table) -> str:
    """Content id of a layer, 32 hex digits: paths, kinds, modes, opaque marks, digests of files and of link targets."""
    rows = [[path, r.entry.kind, r.entry.mode, r.entry.digest, r.opaque] for path, r in sorted(table.items())]
    return hashlib.sha256(json.dumps(["refork layer 1", rows]).encode()).hexdigest()[:32]


def pack(layer: Path, table: Table) -> Iterator[bytes]:
    """The archive of a layer that holds what `table` says, in chunks of at most `CHUNK_BYTES`. Raises InfraFailure."""
    buffer = bytearray()
    try:
        for part in _parts(str(layer), table):
            buffer += part
            while len(buffer) >= CHUNK_BYTES:
                yield bytes(buffer[:CHUNK_BYTES])
                del buffer[:CHUNK_BYTES]
    except OSError as error:
        raise InfraFailure(f"layer {layer} cannot be read: {error.strerror} ({error.filename})") from error
    yield bytes(buffer)


def _parts(layer: str, table: Table) -> Iterator[bytes]:
    with contextlib.ExitStack() as stack:
        for path, row in table.items():
            if row.entry.kind == "dir":
                stack.enter_context(opened_up(host_name(layer, path), row.entry.mode, 0o700))
        for path, row in sorted(table.items()):
            yield from _entry(host_name(layer, path), os.fsencode(host_name("", path)[1:]), row)
    yield END


def _entry(source: str, name: bytes, row: Row) -> Iterator[bytes]:
    if row.entry.kind == "file":
        with opened_up(source, row.entry.mode, 0o400):
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as reader:
            size = os.fstat(descriptor).st_size
            yield _header(name, row, b"", size)
            left = size
            while left:
                part = reader.read(min(left, _READ_BYTES))
                if not part:
                    raise InfraFailure(f"{source} became shorter while it was read")
                left -= len(part)
                yield part
            yield bytes(-size % BLOCK)
    else:
        target = os.fsencode(os.readlink(source)) if row.entry.kind == "link" else b""
        yield _header(name, row, target, 0)


def _header(name: bytes, row: Row, target: bytes, size: int) -> bytes:
    """A pax header with all that is no number, then the entry's own."""
    records = {b"hdrcharset": b"BINARY", b"path": name}
    if target:
        records[b"linkpath"] = target
    if row.entry.kind in MARKED:
        records[KIND] = row.entry.kind.encode()
    if row.opaque:
        records[OPAQUE_MARK] = b"1"
    text = b"".join(_record(key, value) for key, value in records.items())
    head = _block(tarfile.XHDTYPE, "pax", 0o644, len(text))
    return head + text + bytes(-len(text) % BLOCK) + _block(TYPES[row.entry.kind], "entry", row.entry.mode, size)


def _record(key: bytes, value: bytes) -> bytes:
    """`LENGTH key=value\\n`, where the length counts its own digits."""
    rest = len(key) + len(value) + 3
    length = rest
    while length != rest + len(str(length)):
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _block(kind: bytes, name: str, mode: int, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size = kind, mode, size
    return info.tobuf(tarfile.USTAR_FORMAT)
