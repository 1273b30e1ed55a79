"""Inside the container: single files read and written for the host, wherever links of the workspace lead.

No path outside the state is touched. Standard library only and Python 3.9 syntax: it must run on the interpreter of any
image.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from refork.envs.swe.sandbox.supervisor_tree import KINDS, Tree, no_follow
from refork.envs.swe.sandbox.trees import remove_tree


def resolve(roots: list[str], path: str, *, follow: bool = True) -> str:
    """The path without links (`follow`: also at its end), which must lie in the state."""
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"not an absolute sandbox path: {path!r}")
    folder, name = os.path.split(path.rstrip("/"))
    if ".." in folder.split("/"):
        os.stat(folder)
    real = os.path.realpath(path) if follow else os.path.join(os.path.realpath(folder), name)
    if follow and os.path.islink(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if not any(real == root or real.startswith(root + "/") for root in roots):
        raise PermissionError(errno.EACCES, f"outside {' and '.join(roots)} of the sandbox", path)
    return real


def get_file(tree: Tree, path: str, max_bytes: int) -> bytes:
    """At most `max_bytes` of a regular file, links followed. Raises OSError, and ValueError for other kinds."""
    real = resolve(tree.roots, path)
    kind = KINDS[stat.S_IFMT(os.stat(real).st_mode)]
    if kind not in ("file", "dir"):
        raise ValueError(f"{path} is a {kind} in the sandbox, not a file")
    with open(real, "rb", opener=no_follow) as source:
        return source.read(max_bytes)


def put_file(tree: Tree, path: str, content: memoryview) -> None:
    """Replace or make a file, links followed, keeping the mode of one that is there; missing folders are made."""
    real = resolve(tree.roots, path)
    if os.path.isdir(real):
        raise IsADirectoryError(errno.EISDIR, "a folder in the sandbox", path)
    mode = stat.S_IMODE(os.lstat(real).st_mode) if os.path.isfile(real) else 0o644
    _make_folder(tree, os.path.dirname(real), path)
    tree.make(real, "file", mode, content)


def _make_folder(tree: Tree, folder: str, wanted: str) -> None:
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is no folder in the sandbox", wanted)
    for path in reversed(missing):
        tree.make(path, "dir", 0o755, memoryview(b""))


def delete(tree: Tree, path: str) -> None:
    """Remove a file, link or whole folder; nothing there is no error."""
    try:
        real = resolve(tree.roots, path, follow=False)
    except (FileNotFoundError, NotADirectoryError):
        return
    if real not in tree.roots and os.path.lexists(real):
        remove_tree(Path(real))
