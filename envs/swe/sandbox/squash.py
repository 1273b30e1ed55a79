"""Makes one layer of a chain of layers: from what the chain changes on its base, not by copying layer over layer."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from refork.envs.swe.sandbox.base import TMP, WORKSPACE, Entry
from refork.envs.swe.sandbox.scan import Base, Table, host_path
from refork.envs.swe.sandbox.trees import opened_up

_SPECIAL = {"fifo": stat.S_IFIFO, "socket": stat.S_IFSOCK}


def flatten(
    target: Path,
    base: Base,
    layers: Sequence[tuple[Path, Table]],
    changes: Mapping[str, Entry],
    give: Callable[[Path], None],
) -> None:
    """Fill the empty folder `target` with a layer that shows `changes` on `base`.

    `layers` (newest first) hold the bytes; files are linked, not copied. `give` sets the owner of what is made.
    Where a base's folder was replaced by another, its vanished children are deleted one by one: no folder is opaque.
    """
    with contextlib.ExitStack() as stack:
        for layer, table in layers:
            for path, row in table.items():
                if row.entry.kind == "dir":
                    stack.enter_context(opened_up(str(host_path(layer, path)), row.entry.mode, 0o700))
        _fill(target, base, layers, changes, give)


def _fill(
    target: Path,
    base: Base,
    layers: Sequence[tuple[Path, Table]],
    changes: Mapping[str, Entry],
    give: Callable[[Path], None],
) -> None:
    folders: dict[str, int] = {}
    for path in sorted(changes):
        _folder(target, path.rpartition("/")[0], base, changes, folders, give)
        entry = changes[path]
        where = host_path(target, path)
        if entry.kind == "dir":
            _folder(target, path, base, changes, folders, give)
        elif entry.kind == "file":
            os.link(_source(layers, path), where, follow_symlinks=False)
        else:
            _make(where, entry, os.readlink(_source(layers, path)) if entry.kind == "link" else "")
            give(where)
    for path, mode in reversed(folders.items()):
        host_path(target, path).chmod(mode)


def _make(where: Path, entry: Entry, target: str) -> None:
    if entry.kind == "deleted":
        os.mknod(where, stat.S_IFCHR, os.makedev(0, 0))
    elif entry.kind == "link":
        where.symlink_to(target)
    else:
        os.mknod(where, _SPECIAL[entry.kind] | 0o600)
        where.chmod(entry.mode)


def _folder(
    target: Path,
    path: str,
    base: Base,
    changes: Mapping[str, Entry],
    folders: dict[str, int],
    give: Callable[[Path], None],
) -> None:
    """Make a folder of the layer and its ancestors; `folders` gathers the modes they get in the end."""
    if path in folders or not path:
        return
    if path not in (WORKSPACE, TMP):
        _folder(target, path.rpartition("/")[0], base, changes, folders, give)
    where = host_path(target, path)
    where.mkdir()
    give(where)
    folders[path] = (changes.get(path) or base.entries[path]).mode


def _source(layers: Sequence[tuple[Path, Table]], path: str) -> Path:
    return next(host_path(layer, path) for layer, table in layers if path in table)
