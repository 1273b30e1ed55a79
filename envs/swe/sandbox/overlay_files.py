"""Reads and writes single files of an overlay state from the host, without a mount and without a process.

Links are followed as the sandbox would follow them, but by our own tables: the host's kernel never resolves a link
that hostile code has made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from refork.envs.swe.sandbox.base import TMP, WORKSPACE, Entry
from refork.envs.swe.sandbox.scan import OPAQUE, Base, Table, host_path
from refork.envs.swe.sandbox.trees import opened_up, remove_tree

_MAX_LINKS = 40
_ROOT = Entry("dir", 0o755, "")


class Files:
    """One state: what it shows (`changes` on `base`), where its bytes lie (`layers`, newest first, then `bottom`)."""

    def __init__(
        self, base: Base, changes: Mapping[str, Entry], layers: Sequence[tuple[Path, Table]], bottom: Path
    ) -> None:
        self._base = base
        self._changes = dict(changes)
        self._layers = layers
        self._bottom = bottom

    def entry(self, path: str) -> Entry | None:
        """What is at a path without links, if anything."""
        if path == "":
            return _ROOT
        folder = path.rpartition("/")[0]
        while folder:
            above = self._changes.get(folder)
            if above is not None and above.kind != "dir":
                return None
            folder = folder.rpartition("/")[0]
        found = self._changes.get(path) or self._base.entries.get(path)
        return None if found is None or found.kind == "deleted" else found

    def note(self, path: str, entry: Entry) -> None:
        """What is at a path from now on; after a deletion nothing is below it."""
        if entry.kind == "deleted":
            prefix = path + "/"
            for below in [p for p in self._changes if p.startswith(prefix)]:
                del self._changes[below]
        self._changes[path] = entry

    def resolve(self, path: str, *, follow: bool = True) -> str:
        """The path without links (`follow`: also at its end). Its last part need not exist.

        Raises ValueError for a path that is not absolute, PermissionError for one outside the workspace and /tmp,
        FileNotFoundError, NotADirectoryError.
        """
        if not path.startswith("/") or "\0" in path:
            raise ValueError(f"not an absolute sandbox path: {path!r}")
        pending = _parts(path)
        done, links = "", 0
        while pending:
            part = pending.pop()
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            self._need_folder(done, path)
            here = f"{done}/{part}"
            found = self.entry(here)
            if found is not None and found.kind == "link" and (pending or follow):
                links += 1
                if links > _MAX_LINKS:
                    raise OSError(errno.ELOOP, f"{os.strerror(errno.ELOOP)} in the sandbox", path)
                target = os.readlink(self.source(here))
                done = "" if target.startswith("/") else done
                pending += _parts(target)
            else:
                done = here
        if not _inside(done):
            raise PermissionError(errno.EACCES, f"outside {WORKSPACE} and {TMP} of the sandbox", path)
        return done

    def _need_folder(self, path: str, wanted: str) -> None:
        found = self.entry(path)
        if found is None and not _inside(path):
            raise PermissionError(errno.EACCES, f"outside {WORKSPACE} and {TMP} of the sandbox", wanted)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "not in the sandbox", wanted)
        if found.kind != "dir":
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is no folder in the sandbox", wanted)

    def source(self, path: str) -> Path:
        """Where the bytes of an existing path lie: in the newest layer that has it."""
        for layer, table in self._layers:
            if path in table:
                return host_path(layer, path)
        return host_path(self._bottom, path)

    def read(self, path: str, max_bytes: int) -> bytes:
        """At most `max_bytes` of a regular file. Raises as `resolve`, and IsADirectoryError, ValueError for others."""
        resolved = self.resolve(path)
        found = self.entry(resolved)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "not in the sandbox", path)
        if found.kind == "dir":
            raise IsADirectoryError(errno.EISDIR, "a folder in the sandbox", path)
        if found.kind != "file":
            raise ValueError(f"{path} is a {found.kind} in the sandbox, not a file")
        source = self.source(resolved)
        with opened_up(str(source), os.lstat(source).st_mode, 0o400):
            descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as reader:
            return reader.read(max_bytes)


class Writer:
    """Puts files into an upper layer that nothing else is using."""

    def __init__(self, files: Files, upper: Path, give: Callable[[Path], None], below: Callable[[str], bool]) -> None:
        self._files = files
        self._upper = upper
        self._give = give
        self._below = below
        """Whether any lower layer may hold a path."""

    def write(self, path: str, content: bytes) -> None:
        """Replace or make a file, keeping the mode of one that is there; missing folders are made."""
        resolved = self._resolve(path)
        found = self._files.entry(resolved)
        if found is not None and found.kind == "dir":
            raise IsADirectoryError(errno.EISDIR, "a folder in the sandbox", path)
        parent = self._folder(resolved.rpartition("/")[0])
        target = host_path(self._upper, resolved)
        with opened_up(str(parent), os.lstat(parent).st_mode, 0o300):
            remove_tree(target)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as writer:
                writer.write(content)
            self._give(target)
            mode = found.mode if found is not None and found.kind == "file" else 0o644
            target.chmod(mode)
        self._files.note(resolved, Entry("file", mode, ""))

    def delete(self, path: str) -> None:
        """Remove a file, link or whole folder; nothing there is no error."""
        try:
            resolved = self._files.resolve(path, follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        if self._files.entry(resolved) is None or resolved in (WORKSPACE, TMP):
            return
        parent = self._folder(resolved.rpartition("/")[0])
        target = host_path(self._upper, resolved)
        with opened_up(str(parent), os.lstat(parent).st_mode, 0o300):
            remove_tree(target)
            if self._below(resolved):
                os.mknod(target, stat.S_IFCHR, os.makedev(0, 0))
                self._give(target)
        self._files.note(resolved, Entry("deleted", 0, ""))

    def _resolve(self, path: str) -> str:
        """As far as it exists by the sandbox's links; the rest, to be made, as it is written."""
        missing: list[str] = []
        head = path
        while True:
            try:
                resolved = self._files.resolve(head)
            except FileNotFoundError:
                head, _, last = head.rstrip("/").rpartition("/")
                if last == ".." or not head:
                    raise
                missing.insert(0, last)
                continue
            if ".." in missing or (missing and self._files.entry(f"{resolved}/{missing[0]}") is not None):
                raise FileNotFoundError(errno.ENOENT, "not in the sandbox", path)
            return "/".join([resolved, *missing])

    def _folder(self, path: str) -> Path:
        """The upper layer's own copy of a folder, made with all its ancestors where it is missing."""
        target = host_path(self._upper, path)
        if target.is_dir() and not target.is_symlink():
            return target
        if path in (WORKSPACE, TMP):
            self._make_folder(target, path, self._upper)
            return target
        parent = self._folder(path.rpartition("/")[0])
        with opened_up(str(parent), os.lstat(parent).st_mode, 0o300):
            self._make_folder(target, path, parent)
        return target

    def _make_folder(self, target: Path, path: str, parent: Path) -> None:
        hidden = os.path.lexists(target)
        if hidden:
            target.unlink()
        found = self._files.entry(path)
        target.mkdir()
        if hidden:
            os.setxattr(target, OPAQUE, b"y")
        self._give(target)
        mode = found.mode if found is not None else 0o755
        target.chmod(mode)
        self._files.note(path, Entry("dir", mode, ""))


def _inside(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in (WORKSPACE, TMP))


def _parts(path: str) -> list[str]:
    """Parts of a path, last first; '..' stays."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
