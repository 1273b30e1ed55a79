"""Inside the container: what the workspace and /tmp hold, and how they are made to hold something else.

Runs as root while no command lives, so nothing changes under it; links are never followed on the way. Standard
library only and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Any

from refork.envs.swe.sandbox.trees import disk_use, remove_tree

RACY_NS = 20_000_000
"""A file changed this shortly before it was hashed may change again within one tick of its change time."""

BUFFER_BYTES = 1 << 20
"""Read by, and given back after every scan: file contents must not be readable from a later command's own heap."""
LONGEST_PATH = 3500
"""Bytes; a folder of a longer name is removed after the command, and the state counts as larger than any limit."""
ENTRY_BYTES = 4096

Row = list[Any]
"""[kind, mode, digest] of one path."""

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


class Tree:
    """The content below `roots`, scanned at the cost of a stat per path; a file is hashed only when it changed."""

    def __init__(self, roots: list[str], volatile: list[str], uid: int) -> None:
        self.roots = roots
        self.volatile = frozenset(volatile)
        self.uid = uid
        self.rows: dict[str, Row] = {}
        self.dirty = True
        self._signatures: dict[str, tuple[int, ...]] = {}
        self._found: list[tuple[str, os.stat_result]] = []

    def touch(self) -> None:
        """Something is about to change the content: what is known of it is out of date."""
        self.dirty, self._found = True, []

    def survey(self) -> int:
        """Look at every path once and delete what is volatile; bytes in use, each path at least ENTRY_BYTES."""
        self._found = []
        used, pending = 0, list(self.roots)
        while pending:
            used += self._survey_folder(pending.pop(), pending)
        return used

    def scan(self) -> None:
        """Bring `rows` up to date, by the last survey or a new one. Does nothing when no command has run since."""
        if not self.dirty:
            return
        if not self._found:
            self.survey()
        rows: dict[str, Row] = {root: ["dir", stat.S_IMODE(os.lstat(root).st_mode), ""] for root in self.roots}
        signatures: dict[str, tuple[int, ...]] = {}
        racy = time.time_ns() - RACY_NS
        with mmap.mmap(-1, BUFFER_BYTES) as self._buffer:
            for path, info in self._found:
                signature = (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)
                same = self._signatures.get(path) == signature
                rows[path] = self.rows[path] if same else self._row(path, info)
                if info.st_ctime_ns < racy:
                    signatures[path] = signature
        self.rows, self._signatures, self._found, self.dirty = rows, signatures, [], False

    def holds_more_than(self, most: int) -> bool:
        """Whether the files claim more than `most` bytes, holes included. Commands may be running."""
        used = 0
        for root in self.roots:
            used += disk_use(Path(root), most - used)
        return used > most

    def _survey_folder(self, folder: str, pending: list[str]) -> int:
        used = 0
        for entry in _entries(folder):
            path, info = entry.path, entry.stat(follow_symlinks=False)
            used += max(info.st_size, ENTRY_BYTES)
            if stat.S_ISDIR(info.st_mode):
                too_long = len(os.fsencode(path)) > LONGEST_PATH
                if too_long or entry.name in self.volatile:
                    remove_tree(Path(path))
                    used += sys.maxsize if too_long else 0
                    continue
                pending.append(path)
            elif info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
                _cut_hard_link(path, info)
                info = os.lstat(path)
            self._found.append((path, info))
        return used

    def _row(self, path: str, info: os.stat_result) -> Row:
        kind = _KINDS[stat.S_IFMT(info.st_mode)]
        mode = stat.S_IMODE(info.st_mode)
        if kind == "file":
            return [kind, mode, self._digest(path)]
        if kind == "link":
            return [kind, mode, hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()]
        return [kind, mode, ""]

    def _digest(self, path: str) -> str:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0, opener=_no_follow) as source, memoryview(self._buffer) as buffer:
            while count := source.readinto(buffer):
                digest.update(buffer[:count])
        return digest.hexdigest()

    def changes_from(self, reported: dict[str, Row]) -> tuple[dict[str, Row], list[str]]:
        """Rows that differ from `reported`, and paths that are gone since."""
        known = reported.get
        changed = {path: row for path, row in self.rows.items() if known(path) is not row and known(path) != row}
        return changed, [path for path in reported if path not in self.rows]

    def apply(self, remove: list[str], make: list[Row], body: memoryview) -> None:
        """Remove paths, then make rows of [path, kind, mode, size], whose contents follow each other in `body`.

        A link's content is its target. Parents come before children in `make`; a path in the way is removed.
        """
        self.touch()
        checked: set[str] = set()
        for path in remove:
            self._check(path, checked)
            remove_tree(Path(path))
        offset = 0
        checked.clear()
        for path, kind, mode, size in make:
            self._check(path, checked)
            self._make(path, kind, mode, body[offset : offset + size])
            offset += size

    def _check(self, path: str, checked: set[str]) -> None:
        """All above `path` are folders of the state; `checked` are known to be, and learn more."""
        folder = path
        while folder not in self.roots and (folder := os.path.dirname(folder)) not in checked:
            if len(folder) < 2 or os.path.islink(folder) or not os.path.isdir(folder):
                raise ValueError(f"not a path of the state: {path!r}")
            checked.add(folder)

    def _make(self, path: str, kind: str, mode: int, content: memoryview) -> None:
        if kind != "dir" or not _is_folder(path):
            remove_tree(Path(path))
        if kind == "dir":
            os.makedirs(path, exist_ok=True)
        elif kind == "link":
            os.symlink(bytes(content), os.fsencode(path))
        elif kind == "file":
            _write(path, content)
        else:
            os.mknod(path, {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}[kind] | 0o600)
        os.chown(path, self.uid, self.uid, follow_symlinks=False)
        if kind != "link":
            os.chmod(path, mode)

    def read(self, path: str) -> bytes:
        """A file's bytes or a link's target."""
        self._check(path, set())
        if os.path.islink(path):
            return os.readlink(os.fsencode(path))
        with open(path, "rb", opener=_no_follow) as source:
            return source.read()

    def _resolve(self, path: str, *, follow: bool = True) -> str:
        """The path without links (`follow`: also at its end), which must lie in the state."""
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"not an absolute sandbox path: {path!r}")
        folder, name = os.path.split(path.rstrip("/"))
        if ".." in folder.split("/"):
            os.stat(folder)
        real = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
        if follow and os.path.islink(real):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if not any(real == root or real.startswith(root + "/") for root in self.roots):
            raise PermissionError(errno.EACCES, f"outside {' and '.join(self.roots)} of the sandbox", path)
        return real

    def get(self, path: str, max_bytes: int) -> bytes:
        """At most `max_bytes` of a regular file, links followed. Raises OSError, and ValueError for other kinds."""
        real = self._resolve(path)
        kind = _KINDS[stat.S_IFMT(os.stat(real).st_mode)]
        if kind not in ("file", "dir"):
            raise ValueError(f"{path} is a {kind} in the sandbox, not a file")
        with open(real, "rb", opener=_no_follow) as source:
            return source.read(max_bytes)

    def write(self, path: str, content: memoryview) -> None:
        """Replace or make a file, links followed, keeping the mode of one that is there; missing folders are made."""
        real = self._resolve(path)
        if os.path.isdir(real):
            raise IsADirectoryError(errno.EISDIR, "a folder in the sandbox", path)
        mode = stat.S_IMODE(os.lstat(real).st_mode) if os.path.isfile(real) else 0o644
        self._make_folder(os.path.dirname(real), path)
        self._make(real, "file", mode, content)

    def _make_folder(self, folder: str, wanted: str) -> None:
        if os.path.isdir(folder):
            return
        if os.path.lexists(folder):
            raise NotADirectoryError(errno.ENOTDIR, f"{folder} is no folder in the sandbox", wanted)
        self._make_folder(os.path.dirname(folder), wanted)
        self._make(folder, "dir", 0o755, memoryview(b""))

    def delete(self, path: str) -> None:
        """Remove a file, link or whole folder; nothing there is no error."""
        try:
            real = self._resolve(path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        if real not in self.roots and os.path.lexists(real):
            remove_tree(Path(real))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def _cut_hard_link(path: str, info: os.stat_result) -> None:
    """Names of one file would come apart when the state is restored; so they do at once, in every sandbox."""
    copy = path + ".refork-cut"
    shutil.copyfile(path, copy, follow_symlinks=False)
    os.chown(copy, info.st_uid, info.st_gid)
    os.chmod(copy, stat.S_IMODE(info.st_mode))
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))
    os.replace(copy, path)


def _no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _write(path: str, content: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb", buffering=0) as target:
        done = 0
        while done < len(content):
            done += target.write(content[done:])
