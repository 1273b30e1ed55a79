"""Handling folders that hostile code has written: any depth, any modes, any size. No link in them is ever followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ENTRY_BYTES = 4096


@contextmanager
def opened_up(path: str, mode: int, needed: int) -> Iterator[None]:
    """Let an ordinary user read what the sandbox's user, who is the same, has closed to himself."""
    if os.geteuid() == 0 or mode & needed == needed:
        yield
        return
    os.chmod(path, stat.S_IMODE(mode) | needed)
    try:
        yield
    finally:
        os.chmod(path, stat.S_IMODE(mode))


def remove_tree(path: Path) -> None:
    """Remove a file or folder, whatever its depth and modes; nothing there is no error.

    Folders inside are moved up before they are emptied, so neither path lengths nor a stack can run out.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    pending, serial = _empty(str(path), str(path), 0)
    while pending:
        folder = pending.pop()
        inner, serial = _empty(folder, str(path), serial)
        pending += inner
        os.rmdir(folder)
    path.rmdir()


def _empty(folder: str, top: str, serial: int) -> tuple[list[str], int]:
    """Unlink the files of a folder and move its folders into `top`; where they are now."""
    if os.geteuid() != 0:
        os.chmod(folder, 0o700)
    moved = []
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
        elif folder == top:
            moved.append(entry.path)
        else:
            if os.geteuid() != 0:
                os.chmod(entry.path, 0o700)
            serial += 1
            while os.path.lexists(f"{top}/{serial}"):
                serial += 1
            os.rename(entry.path, f"{top}/{serial}")
            moved.append(f"{top}/{serial}")
    return moved, serial


def disk_use(root: Path, limit: int, *, live: bool = False) -> int:
    """Bytes that a tree takes up: a file its length (also where it is sparse), anything at least 4 KiB.

    Stops counting beyond `limit`. A path too long for the host counts as beyond it; what vanishes meanwhile as 0, and
    so, in a tree that a command is `live` in, do folders closed to an ordinary user: no mode is changed under it.
    """
    total = 0
    pending = [str(root)]
    while pending and total <= limit:
        folder = pending.pop()
        try:
            mode = os.lstat(folder).st_mode
            with opened_up(folder, mode, 0 if live else 0o500), os.scandir(folder) as found:
                for entry in found:
                    info = entry.stat(follow_symlinks=False)
                    total += max(info.st_size, _ENTRY_BYTES)
                    if stat.S_ISDIR(info.st_mode):
                        pending.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):  # gone, or the whiteout of a folder that is
            continue
        except OSError as error:
            if live and error.errno == errno.EACCES:
                continue
            if error.errno == errno.ENAMETOOLONG:
                return limit + 1
            raise
    return total
