"""A control group that bounds the memory of all processes of a sandbox together, where the host lets us make one.

The spawner itself is put in and its children are born in it: moving a process costs the kernel more than a command.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.owner import alive, owner

_MOUNT = Path("/sys/fs/cgroup")
_PREFIX = "refork-"
_SLACK_BYTES = 4 << 20
"""For what the kernel itself keeps for the spawner's next child."""


class MemoryGroup:
    """A group of version 1 or 2. `limit` counts what the commands may use beyond the spawner's own memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version = 2 if (path / "memory.max").exists() else 1
        self._limit = 0
        self._own = 0
        self._kills = 0

    def add(self, pid: int) -> None:
        (self.path / "cgroup.procs").write_text(str(pid))

    def measure(self) -> None:
        """Take what is in use now as the spawner's own; to be called when no command runs."""
        rows = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        self._own = int(rows["anon" if self._version == 2 else "rss"]) + _SLACK_BYTES

    def limit(self, memory_bytes: int) -> None:
        """Raises InfraFailure when more than that is in use and cannot be reclaimed."""
        wanted = memory_bytes + self._own
        if wanted == self._limit:
            return
        name = "memory.max" if self._version == 2 else "memory.limit_in_bytes"
        try:
            (self.path / name).write_text(str(wanted))
        except OSError as error:
            raise InfraFailure(f"cannot limit the memory of {self.path} to {wanted} bytes: {error}") from error
        self._limit = wanted

    def killed(self) -> bool:
        """Whether the kernel has killed a process here for want of memory since this was last asked."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        rows = dict(line.split() for line in (self.path / name).read_text().splitlines())
        before, self._kills = self._kills, int(rows.get("oom_kill", 0))
        return self._kills > before

    def close(self) -> None:
        """Remove the group once its processes are gone."""
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)


def make_group(serial: int) -> MemoryGroup | None:
    """A group for this process's spawner number `serial`; None where there is no right to make one."""
    for parent in _parents():
        path = parent / f"{_PREFIX}{owner()}.{serial}"
        try:
            path.mkdir(exist_ok=True)
        except OSError:
            continue
        if (path / "memory.max").exists() or (path / "memory.limit_in_bytes").exists():
            return MemoryGroup(path)
        path.rmdir()
    return None


def memory_groups_here() -> Path | None:
    """The group under which ours would be made, found by trying."""
    group = make_group(0)
    if group is None:
        return None
    group.close()
    return group.path.parent


def _parents() -> Iterator[Path]:
    """Where groups of ours may be possible: below our own group, beside it, at the top."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            top = _MOUNT if number == "0" else _MOUNT / "memory"
            own = top / path.strip("/")
            yield from dict.fromkeys(p for p in (own, own.parent, top) if p.is_relative_to(top) and p.is_dir())


def sweep_groups() -> None:
    """Remove groups whose owner has died, ours and those of neighbours; one with processes stays for the next time."""
    for parent in _parents():
        for path in (*parent.glob(f"{_PREFIX}*"), *parent.glob(f"*/{_PREFIX}*")):
            if not alive(path.name[len(_PREFIX) :].rpartition(".")[0]):
                with contextlib.suppress(OSError):
                    path.rmdir()
