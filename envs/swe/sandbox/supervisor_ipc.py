"""Inside the container: memory that outlives a command outside the file system, and would be state that no id covers.

Standard library only and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from refork.envs.swe.sandbox.trees import remove_tree

FOLDERS = ("/dev/shm", "/dev/mqueue")
_LIBC = ctypes.CDLL(None, use_errno=True)
_REMOVE = 0
_SYSTEM_V: dict[str, Callable[[int], int]] = {
    "shm": lambda number: _LIBC.shmctl(number, _REMOVE, None),
    "sem": lambda number: _LIBC.semctl(number, 0, _REMOVE),
    "msg": lambda number: _LIBC.msgctl(number, _REMOVE, None),
}


def clear_folders() -> None:
    """Empty the shared-memory and message-queue file systems. No command may be running."""
    for folder in FOLDERS:
        if os.path.isdir(folder):
            for path in Path(folder).iterdir():
                remove_tree(path)


def system_v_objects() -> list[tuple[str, int]]:
    """Kind and number of every System V object of this namespace."""
    found = []
    for kind in _SYSTEM_V:
        try:
            table = os.open(f"/proc/sysvipc/{kind}", os.O_RDONLY)
        except FileNotFoundError:
            continue
        lines = os.read(table, 1 << 20).splitlines()[1:]
        os.close(table)
        found += [(kind, int(line.split()[1])) for line in lines]
    return found


def remove_system_v(objects: list[tuple[str, int]]) -> None:
    """Remove System V objects; only their own user may."""
    for kind, number in objects:
        _SYSTEM_V[kind](number)
