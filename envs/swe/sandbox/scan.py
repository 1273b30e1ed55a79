"""What one overlay layer holds, and what it makes of the state below it. Cost: O(the layer), not O(the workspace).

A layer is a folder with `work` and `tmp` in it. Overlayfs writes a removed path as a character device 0:0 and marks a
folder that hides the one below it with the attribute `user.overlay.opaque`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import TMP, VOLATILE, WORKSPACE, Entry
from refork.envs.swe.sandbox.manifest import copy_file, digest_file, digest_link, kind_of
from refork.envs.swe.sandbox.trees import opened_up, remove_tree

OPAQUE = "user.overlay.opaque"
ROOTS: Mapping[str, str] = {"work": WORKSPACE, "tmp": TMP}
_RACY_NS = 30_000_000
"""A file changed this shortly before it was read may change again without a new time stamp: read it again."""

Stamp = tuple[int, int, int, int, int]


class Row(NamedTuple):
    """One path of a layer. `stamp` tells without reading whether it is still what it was."""

    entry: Entry
    opaque: bool
    size: int
    stamp: Stamp
    certain: bool
    """False: read so soon after its last change that another change might leave the same stamp."""


Table = Mapping[str, Row]


def stamp_of(info: os.stat_result) -> Stamp:
    return (info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)


def host_name(layer: str, path: str) -> str:
    """Where the layer holds the sandbox path '/testbed/...' or '/tmp/...'."""
    root, slash, rest = path[1:].partition("/")
    return f"{layer}/{'work' if root == WORKSPACE[1:] else 'tmp'}{slash}{rest}"


def host_path(layer: Path, path: str) -> Path:
    """`host_name` as a Path."""
    return Path(host_name(str(layer), path))


def scan_layer(layer: Path, known: Table, cut: Path | None) -> dict[str, Row]:
    """Every path of a layer, parents first. Volatile folders are removed and hard links cut on the way.

    `known` is an earlier scan: what kept its stamp is not read again. `cut` is a scratch path on the same disk, out of
    the sandbox's reach, to cut links with; None leaves them. Only for a layer that nothing writes to.
    """
    rows: dict[str, Row] = {}
    pending = []
    for name, path in ROOTS.items():
        if (layer / name).is_dir():
            info = os.lstat(layer / name)
            rows[path] = _row(str(layer / name), info, known.get(path), cut)
            pending.append((str(layer / name), path, info.st_mode))
    while pending:
        folder, path, mode = pending.pop()
        with opened_up(folder, mode, 0o700):
            for entry in _children(folder):
                info = entry.stat(follow_symlinks=False)
                child = f"{path}/{entry.name}"
                rows[child] = _row(entry.path, info, known.get(child), cut)
                if stat.S_ISDIR(info.st_mode):
                    pending.append((entry.path, child, info.st_mode))
    return rows


def _children(folder: str) -> list[os.DirEntry[str]]:
    kept = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.name in VOLATILE and entry.is_dir(follow_symlinks=False):
                remove_tree(Path(entry.path))
            else:
                kept.append(entry)
    return kept


def _row(path: str, info: os.stat_result, known: Row | None, cut: Path | None) -> Row:
    if known is not None and known.certain and known.stamp == stamp_of(info):
        return known
    if stat.S_ISCHR(info.st_mode) and info.st_rdev == 0:
        return Row(Entry("deleted", 0, ""), False, 0, stamp_of(info), True)
    kind = kind_of(info.st_mode)
    if kind is None:
        raise InfraFailure(f"{path} is a device; a sandbox cannot make one")
    started = time.time_ns()
    digest, opaque = "", False
    if kind == "file":
        if info.st_nlink > 1 and cut is not None:
            _cut_hard_link(path, info, cut)
            info = os.lstat(path)
        with opened_up(path, info.st_mode, 0o400):
            digest = digest_file(path)
    elif kind == "link":
        digest = digest_link(path)
    elif kind == "dir":
        opaque = _is_opaque(path, info.st_mode)
    if os.geteuid() != 0:
        info = os.lstat(path)
    certain = info.st_ctime_ns < started - _RACY_NS
    size = max(info.st_size, info.st_blocks * 512) if kind == "file" else 0
    return Row(Entry(kind, stat.S_IMODE(info.st_mode), digest), opaque, size, stamp_of(info), certain)


def _is_opaque(path: str, mode: int) -> bool:
    try:
        with opened_up(path, mode, 0o400):
            return os.getxattr(path, OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _cut_hard_link(path: str, info: os.stat_result, copy: Path) -> None:
    """Names of one file would come apart at the next freeze; a state that depends on when that is would be none.

    `copy` lies outside what the sandbox can reach: a link left there by it would be followed.
    """
    with opened_up(path, info.st_mode, 0o400):
        copy_file(path, copy)
    os.chown(copy, info.st_uid, info.st_gid)
    os.chmod(copy, stat.S_IMODE(info.st_mode))
    os.replace(copy, path)


class Base:
    """The manifest of a base with its folders' children at hand."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self.entries = entries
        self.children: dict[str, list[str]] = {}
        for path in entries:
            self.children.setdefault(path.rpartition("/")[0], []).append(path)


def merge(base: Base, below: Mapping[str, Entry], layer: Table) -> Mapping[str, Entry]:
    """The changes of a state whose top layer is `layer` on a state with the changes `below`.

    The result has no entry equal to the base's, so equal contents have equal changes, however they came about.
    """
    return _Merge(base, below, layer).run()


class _Merge:
    def __init__(self, base: Base, below: Mapping[str, Entry], layer: Table) -> None:
        self.base = base
        self.below = below
        self.layer = layer
        self.changes = dict(below)
        self.fresh: set[str] = set()
        """Folders of the layer below which nothing of the lower state shows."""

    def run(self) -> Mapping[str, Entry]:
        for path, row in self.layer.items():
            under = self._below(path)
            was_folder = under is not None and under.kind == "dir"
            is_folder = row.entry.kind == "dir"
            if was_folder and (row.opaque or not is_folder):
                self._forget_below(path)
            if is_folder and (row.opaque or not was_folder):
                self.fresh.add(path)
                self._delete_missing(path)
            self._set(path, row.entry)
        return self.changes

    def _below(self, path: str) -> Entry | None:
        if path.rpartition("/")[0] in self.fresh:
            return None
        entry = self.below.get(path) or self.base.entries.get(path)
        return None if entry is None or entry.kind == "deleted" else entry

    def _set(self, path: str, entry: Entry) -> None:
        original = self.base.entries.get(path)
        if entry == original or (entry.kind == "deleted" and original is None):
            self.changes.pop(path, None)
        else:
            self.changes[path] = entry

    def _forget_below(self, path: str) -> None:
        prefix = path + "/"
        for other in [p for p in self.changes if p.startswith(prefix)]:
            del self.changes[other]

    def _delete_missing(self, path: str) -> None:
        for child in self.base.children.get(path, ()):
            if child not in self.layer:
                self.changes[child] = Entry("deleted", 0, "")
