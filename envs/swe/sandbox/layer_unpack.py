"""Takes a layer's archive apart. It may be damaged, and an agent may have written what is in it: nothing is believed.

Only what `layer_archive` writes is read. A folder must come before what is in it and a path may come once, so nothing
is ever written through a link or over anything. Links may point anywhere: they lead somewhere in a sandbox only, the
host follows none.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import Kind
from refork.envs.swe.sandbox.layer_archive import BLOCK, END, KIND, MARKED, OPAQUE_MARK, TYPES
from refork.envs.swe.sandbox.scan import OPAQUE, ROOTS

MAX_BYTES = 4 << 30
"""Of the files of one layer together, each counted as 4 KiB at least."""
_ENTRY_BYTES = 4096
_RECORDS_BYTES = 64 << 10
_READ_BYTES = 1 << 20
_KEYS = frozenset((b"hdrcharset", b"path", b"linkpath", KIND, OPAQUE_MARK))


class LayerRefused(InfraFailure):
    """An archive that is damaged, cut off, or holds what no layer holds; the message says what and where."""


@dataclass(frozen=True)
class _Entry:
    name: str
    kind: Kind
    mode: int
    size: int
    target: str
    opaque: bool

    def __str__(self) -> str:
        return repr(self.name[:80])


def unpack(chunks: Iterable[bytes], folder: Path, give: Callable[[Path], None], max_bytes: int = MAX_BYTES) -> None:
    """Fill the empty folder `folder`, which is out of any sandbox's reach. `give` sets the owner of what is made.

    Raises LayerRefused; InfraFailure when it cannot be written (disk full).
    """
    try:
        _Unpacking(_Stream(chunks), folder, give, max_bytes).run()
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
            raise LayerRefused(f"a name that cannot be: {error.strerror}") from error
        raise InfraFailure(f"a layer cannot be unpacked in {folder}: {error.strerror}") from error


class _Stream:
    """Bytes by number, out of chunks of any size."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def take(self, number: int) -> bytes:
        """Exactly that many. Raises LayerRefused where they end early."""
        parts = []
        while number:
            if not self._rest:
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise LayerRefused("it ends early")
                self._rest = memoryview(chunk)
            part = self._rest[:number]
            self._rest = self._rest[len(part) :]
            number -= len(part)
            parts.append(part)
        return b"".join(parts)

    def must_end(self) -> None:
        if self._rest or any(self._chunks):
            raise LayerRefused("it goes on after its end")


class _Unpacking:
    def __init__(self, stream: _Stream, folder: Path, give: Callable[[Path], None], max_bytes: int) -> None:
        self._stream, self._folder, self._give, self._max_bytes = stream, folder, give, max_bytes
        self._left = max_bytes
        self._seen: set[str] = set()
        self._folders: dict[str, int] = {}
        """Folders made, with the modes they get in the end."""

    def run(self) -> None:
        while (block := self._stream.take(BLOCK)) != END[:BLOCK]:
            entry = self._entry(block)
            self._check(entry)
            self._make(entry, self._folder / entry.name)
        if self._stream.take(BLOCK) != END[:BLOCK]:
            raise LayerRefused("its end mark is damaged")
        self._stream.must_end()
        for name, mode in reversed(self._folders.items()):
            (self._folder / name).chmod(mode)

    def _entry(self, block: bytes) -> _Entry:
        head = _header(block)
        if head.type != tarfile.XHDTYPE or not 0 < head.size <= _RECORDS_BYTES:
            raise LayerRefused(f"an entry without its records ({head.name[:80]!r})")
        records = _records(self._stream.take(head.size + -head.size % BLOCK)[: head.size])
        info = _header(self._stream.take(BLOCK))
        name = os.fsdecode(records.get(b"path", b""))
        marked = records.get(KIND, b"").decode(errors="replace")
        kind = next((k for k, t in TYPES.items() if t == info.type and (k if k in MARKED else "") == marked), None)
        if kind is None:
            raise LayerRefused(f"{name[:80]!r} is of type {info.type!r} {marked[:20]!r}, which no layer holds")
        target = os.fsdecode(records.get(b"linkpath", b""))
        return _Entry(name, kind, info.mode, info.size, target, records.get(OPAQUE_MARK) == b"1")

    def _check(self, entry: _Entry) -> None:
        parent, _, last = entry.name.rpartition("/")
        is_root = entry.name in ROOTS and entry.kind == "dir"
        if not is_root and (parent not in self._folders or last in ("", ".", "..") or "\0" in last):
            raise LayerRefused(f"{entry} is in no folder of the layer")
        if entry.name in self._seen:
            raise LayerRefused(f"{entry} comes twice")
        if not 0 <= entry.mode <= 0o7777 or entry.size < 0 or (entry.size and entry.kind != "file"):
            raise LayerRefused(f"{entry} has mode {entry.mode:o} and size {entry.size}")
        if (entry.kind == "link") != bool(entry.target) or "\0" in entry.target:
            raise LayerRefused(f"{entry} is a {entry.kind} with the target {entry.target[:80]!r}")
        self._left -= max(entry.size, _ENTRY_BYTES)
        if self._left < 0:
            raise LayerRefused(f"it holds more than {self._max_bytes} bytes, from {entry} on")
        self._seen.add(entry.name)

    def _make(self, entry: _Entry, where: Path) -> None:
        match entry.kind:
            case "dir":
                where.mkdir(mode=0o700)
                if entry.opaque:
                    os.setxattr(where, OPAQUE, b"y")
                self._folders[entry.name] = entry.mode
            case "file":
                self._write(entry, where)
            case "link":
                where.symlink_to(entry.target)
            case "deleted":
                os.mknod(where, stat.S_IFCHR, os.makedev(0, 0))
            case _:
                os.mknod(where, {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}[entry.kind] | 0o600)
        self._give(where)
        if entry.kind in ("file", "fifo", "socket"):  # giving away takes set-id bits off
            where.chmod(entry.mode)

    def _write(self, entry: _Entry, where: Path) -> None:
        left = entry.size
        with open(os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as writer:
            while left:
                part = self._stream.take(min(left, _READ_BYTES))
                writer.write(part)
                left -= len(part)
        if any(self._stream.take(-entry.size % BLOCK)):
            raise LayerRefused(f"{entry} is not as long as it says")


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise LayerRefused(f"a header is damaged: {error}") from error


def _records(data: bytes) -> dict[bytes, bytes]:
    """Pax records, `LENGTH key=value\\n` each."""
    found: dict[bytes, bytes] = {}
    while data:
        digits = data.partition(b" ")[0]
        length = int(digits) if digits.isdigit() and len(digits) <= 6 else 0
        key, equals, value = data[len(digits) + 1 : length].partition(b"=")
        if length > len(data) or not equals or not value.endswith(b"\n") or key not in _KEYS or key in found:
            raise LayerRefused(f"a record is damaged: {data[:80]!r}")
        found[key] = value[:-1]
        data = data[length:]
    return found
