"""Inside the container: what the workspace and /tmp hold, and how they are made to hold something else.

Runs as root while no command lives, so nothing changes under it; links are never followed on the way. Standard
library only and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import stat
import sys
import time
from pathlib import Path
from typing import Any, cast

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

KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


class _Seen:
    """What a survey has found: rows that still hold, and paths to be read again."""

    def __init__(self, rows: dict[str, Row]) -> None:
        self.rows = rows
        self.stamps: dict[str, tuple[int, int]] = {}
        self.changed: list[tuple[str, os.stat_result]] = []


class Tree:
    """The content below `roots`, scanned at the cost of a stat per path; a file is hashed only when it changed."""

    def __init__(self, roots: list[str], volatile: list[str], uid: int) -> None:
        self.roots = roots
        self.volatile = frozenset(volatile)
        self.uid = uid
        self.rows: dict[str, Row] = {}
        self.dirty = True
        self._stamps: dict[str, tuple[int, int]] = {}
        """Inode and change time, which every change of content or mode renews, of paths whose row is certain."""
        self._seen: _Seen | None = None

    def touch(self) -> None:
        """Something is about to change the content: what is known of it is out of date."""
        self.dirty, self._seen = True, None

    def survey(self) -> int:
        """Look at every path once and delete what is volatile; bytes in use, each path at least ENTRY_BYTES."""
        seen = self._seen = _Seen({root: _other_row(os.lstat(root)) for root in self.roots})
        used, pending = 0, list(self.roots)
        while pending:
            used += self._survey_folder(pending.pop(), pending, seen)
        return used

    def scan(self) -> None:
        """Bring `rows` up to date, by the last survey or a new one. Does nothing when no command has run since."""
        if not self.dirty:
            return
        if self._seen is None:
            self.survey()
        seen = cast(_Seen, self._seen)
        racy = time.time_ns() - RACY_NS
        with mmap.mmap(-1, BUFFER_BYTES) as self._buffer:
            for path, info in seen.changed:
                seen.rows[path] = self._row(path, info)
                if info.st_ctime_ns < racy:
                    seen.stamps[path] = (info.st_ino, info.st_ctime_ns)
        self.rows, self._stamps, self._seen, self.dirty = seen.rows, seen.stamps, None, False

    def holds_more_than(self, most: int) -> bool:
        """Whether the files claim more than `most` bytes, holes included. Commands may be running."""
        used = 0
        for root in self.roots:
            used += disk_use(Path(root), most - used)
        return used > most

    def _survey_folder(self, folder: str, pending: list[str], seen: _Seen) -> int:
        used = 0
        stamps, rows = self._stamps, self.rows
        for entry in _entries(folder):
            path, info = entry.path, entry.stat(follow_symlinks=False)
            used += max(info.st_size, ENTRY_BYTES)
            if stat.S_ISDIR(info.st_mode):
                too_long = len(path) > LONGEST_PATH // 4 and len(os.fsencode(path)) > LONGEST_PATH
                if too_long or entry.name in self.volatile:
                    remove_tree(Path(path))
                    used += sys.maxsize if too_long else 0
                    continue
                pending.append(path)
            elif info.st_nlink > 1 and stat.S_ISREG(info.st_mode):
                _cut_hard_link(path, info)
                info = os.lstat(path)
            stamp = (info.st_ino, info.st_ctime_ns)
            if stamps.get(path) == stamp:
                seen.rows[path], seen.stamps[path] = rows[path], stamp
            else:
                seen.changed.append((path, info))
        return used

    def _row(self, path: str, info: os.stat_result) -> Row:
        row = _other_row(info)
        if row[0] == "file":
            row[2] = self._digest(path)
        elif row[0] == "link":
            row[2] = hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
        return row

    def _digest(self, path: str) -> str:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0, opener=no_follow) as source, memoryview(self._buffer) as buffer:
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
            self.make(path, kind, mode, body[offset : offset + size])
            offset += size

    def _check(self, path: str, checked: set[str]) -> None:
        """All above `path` are folders of the state; `checked` are known to be, and learn more."""
        folder = path
        while folder not in self.roots and (folder := os.path.dirname(folder)) not in checked:
            if len(folder) < 2 or os.path.islink(folder) or not os.path.isdir(folder):
                raise ValueError(f"not a path of the state: {path!r}")
            checked.add(folder)

    def make(self, path: str, kind: str, mode: int, content: memoryview) -> None:
        """Make one path, whose parent is a folder; what is in its way is removed."""
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
        with open(path, "rb", opener=no_follow) as source:
            return source.read()


def _other_row(info: os.stat_result) -> Row:
    """The row of what has no content."""
    return [KINDS[stat.S_IFMT(info.st_mode)], stat.S_IMODE(info.st_mode), ""]


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


def no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _write(path: str, content: memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb", buffering=0) as target:
        done = 0
        while done < len(content):
            done += target.write(content[done:])
