"""What a folder holds, as a table of entries: the digest of a base, and what in a workspace differs from it.

Owners and times do not count, `VOLATILE` folders neither. In a base the modes are made normal (a file is 0644 or 0755,
a folder 0755), so that the umask of whoever unpacked it is in no state id; `copy_base` gives a sandbox the same modes.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from refork.envs.swe.sandbox.base import TMP, VOLATILE, WORKSPACE, Entry, Kind

_KINDS: Mapping[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "dir",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}
_CHUNK = 1 << 20


def kind_of(mode: int) -> Kind | None:
    """The kind of an entry by its st_mode; None for devices, which cannot be part of a state."""
    return _KINDS.get(stat.S_IFMT(mode))


def normal_mode(mode: int) -> int:
    """The permission bits that a base's entry has in a sandbox."""
    if stat.S_ISLNK(mode):
        return 0o777
    return 0o755 if stat.S_ISDIR(mode) or mode & 0o100 else 0o644


def digest_file(path: str | os.PathLike[str], directory: int | None = None) -> str:
    """sha256 of a regular file's bytes; never follows a link, never waits on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        found = hashlib.sha256()
        while part := os.read(descriptor, _CHUNK):
            found.update(part)
        return found.hexdigest()
    finally:
        os.close(descriptor)


def digest_link(path: str | os.PathLike[str]) -> str:
    return hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every path below `root`, relative, parents first, with its lstat; volatile folders are left out."""
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(root / folder) as found:
            for entry in found:
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(info.st_mode):
                    if entry.name in VOLATILE:
                        continue
                    pending.append(f"{folder}{entry.name}/")
                yield f"{folder}{entry.name}", info


def _entry(path: Path, info: os.stat_result) -> Entry:
    kind = kind_of(info.st_mode)
    if kind not in ("file", "dir", "link"):
        raise ValueError(f"{path} is a {stat.filemode(info.st_mode)[0]!r}: a base holds only files, folders and links")
    digest = digest_file(path) if kind == "file" else digest_link(path) if kind == "link" else ""
    return Entry(kind, normal_mode(info.st_mode), digest)


def base_manifest(base: Path) -> dict[str, Entry]:
    """Entries of a base by absolute sandbox path, the workspace's own folder and the empty /tmp included.

    Raises ValueError for a socket, pipe or device in the base.
    """
    manifest = {WORKSPACE: Entry("dir", 0o755, ""), TMP: Entry("dir", 0o1777, "")}
    for relative, info in _walk(base):
        manifest[f"{WORKSPACE}/{relative}"] = _entry(base / relative, info)
    return manifest


def digest_manifest(manifest: Mapping[str, Entry]) -> str:
    """Content digest (hex) of a whole manifest."""
    rows = [[path, e.kind, e.mode, e.digest] for path, e in sorted(manifest.items())]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=True).encode()).hexdigest()


def digest_tree(base: Path) -> str:
    """Content digest (hex) of a base folder; equal for two folders that give a sandbox the same workspace."""
    return digest_manifest(base_manifest(base))


def difference(base: Mapping[str, Entry], current: Mapping[str, Entry]) -> dict[str, Entry]:
    """`Sandbox.changes` of a tree whose whole manifest is `current`.

    What is gone with a folder that is gone, or is no folder any more, is not listed again.
    """
    changes = {path: entry for path, entry in current.items() if base.get(path) != entry}
    for path in base:
        if path not in current:
            parent = current.get(path.rpartition("/")[0])
            if parent is not None and parent.kind == "dir":
                changes[path] = Entry("deleted", 0, "")
    return changes


def copy_base(base: Path, target: Path) -> None:
    """Copy a base's content into the new folder `target` as a sandbox is to see it; owners are left to the caller."""
    target.mkdir()
    target.chmod(0o755)
    for relative, info in _walk(base):
        source, copy = base / relative, target / relative
        if stat.S_ISLNK(info.st_mode):
            copy.symlink_to(os.readlink(source))
            continue
        if stat.S_ISDIR(info.st_mode):
            copy.mkdir()
        else:
            copy_file(source, copy)
        copy.chmod(normal_mode(info.st_mode))


def copy_file(source: str | os.PathLike[str], copy: str | os.PathLike[str]) -> None:
    """Copy a regular file's bytes to a new path; never follows a link, never waits on a pipe."""
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as reader, open(copy, "xb") as writer:
        while part := reader.read(_CHUNK):
            writer.write(part)
