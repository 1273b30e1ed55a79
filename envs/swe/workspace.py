"""Folders of workspaces: unpacked source packages, made read-only trees of plain files.

Nothing of a package's future is in them: a released source distribution has no version control data, and what looks
like it is left out all the same.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from refork.envs.forkable import InfraFailure

ALWAYS_DROP = (".git", ".hg", ".svn", "__pycache__", "*.pyc", "*.so", "*.pyd")


def unpack(archive: Path, folder: Path, drop: Iterable[str] = ()) -> None:
    """Unpack a source distribution without its top folder into `folder`, which must not exist.

    `drop` holds globs over workspace-relative paths and over names. Links, devices and executable bits are not taken
    over. Raises InfraFailure for an archive that is none, or that holds paths outside itself.
    """
    globs = (*ALWAYS_DROP, *drop)
    folder.mkdir(parents=True)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = member.name.partition("/")[2]
                if member.isfile() and path and not dropped(path, globs):
                    _write(folder, path, tar, member)
    except (tarfile.TarError, EOFError) as error:
        raise InfraFailure(f"{archive} is not a source distribution: {error}") from error


def _write(folder: Path, path: str, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
    if path.startswith("/") or ".." in path.split("/"):
        raise tarfile.OutsideDestinationError(member, path)
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    data = tar.extractfile(member)
    assert data is not None
    target.write_bytes(data.read())
    target.chmod(0o644)


def dropped(path: str, globs: Iterable[str]) -> bool:
    """Whether `path`, a folder above it, or any of their names matches one of `globs`."""
    parts = path.split("/")
    heads = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return any(fnmatch.fnmatchcase(text, glob) for glob in globs for text in (*heads, *parts))


def files_below(folder: Path, entries: Iterable[str] = ("",)) -> list[str]:
    """Workspace-relative paths of all files in `entries` (folders or files), sorted; those that do not exist are no
    error."""
    found: set[str] = set()
    for entry in entries:
        top = folder / entry
        paths = [top] if top.is_file() else [p for p in top.rglob("*") if p.is_file()]
        found |= {path.relative_to(folder).as_posix() for path in paths}
    return sorted(found)


def matching(folder: Path, globs: Iterable[str]) -> list[str]:
    """Workspace-relative files that match one of `globs` (`**` for any depth), sorted."""
    return sorted({p.relative_to(folder).as_posix() for glob in globs for p in folder.glob(glob) if p.is_file()})


def derive(base: Path, folder: Path, files: Mapping[str, bytes | None], only: Iterable[str] | None = None) -> None:
    """Make `folder` a copy of `base` (of its files in `only`) with `files` replaced; None: left out.

    Equal files are hard links where they can be: a built base is never written.
    """
    for path in files_below(base) if only is None else only:
        if path not in files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            _link(base / path, folder / path)
    for path, data in files.items():
        if data is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # no hard links on this file system
        shutil.copyfile(source, target)
