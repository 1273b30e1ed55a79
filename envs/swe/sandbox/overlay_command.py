"""One command in an overlay sandbox, from the request to the judgement of how it ended."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import DEFAULT_ENVIRONMENT, CommandResult, Kill, Limits
from refork.envs.swe.sandbox.capture import Captured, follow
from refork.envs.swe.sandbox.layers import LayerStore
from refork.envs.swe.sandbox.machine import full
from refork.envs.swe.sandbox.probe import unsupported
from refork.envs.swe.sandbox.spawner import Spawner
from refork.envs.swe.sandbox.trees import disk_use
from refork.envs.swe.sandbox.warm import module_of, same_start

_RESERVE_BYTES = 16 << 20
"""With less than this free, nothing a command reports is believed."""
_OTHERS_BYTES = 1 << 30
"""What others may write to the same disk during a command before it is the suspect."""


@dataclass(frozen=True)
class Command:
    """What is to run. `environment` is added to the default one. Raises ValueError for what no kernel would take."""

    argv: list[str]
    cwd: str
    environment: Mapping[str, str]
    limits: Limits

    def __post_init__(self) -> None:
        texts = (*self.argv, self.cwd, *self.environment, *self.environment.values())
        if not self.argv or any("\0" in text for text in texts):
            raise ValueError(f"a command needs a name and no NUL in it: {self.argv!r} in {self.cwd!r}")

    def run(
        self, spawner: Spawner, store: LayerStore, lower: Sequence[str], upper: Path, *, warm: bool
    ) -> CommandResult:
        """Run it on the layers `lower` (names, newest first), writing to the folder `upper`; nothing of it lives on.

        Raises InfraFailure, UnsupportedHost.
        """
        started = time.monotonic()
        environment = {**DEFAULT_ENVIRONMENT, **self.environment}
        module = module_of(self.argv) if warm and same_start(environment, dict(spawner.system.environment)) else None
        warm = module is not None and spawner.can_warm()
        work = store.new_folder()
        request = {
            "lower": ":".join(lower),
            "upper": str(upper.relative_to(store.root)),
            "work": str(work.relative_to(store.root)),
            "argv": self.argv,
            "cwd": self.cwd,
            "environment": environment,
            "module": module if warm else None,
            "limits": self._limits(spawner),
        }
        running = spawner.spawn(request, warm=warm)
        try:
            captured = follow(running, self.limits, started, self._disk_watch(store, upper))
        finally:
            running.end()
            store.drop(work)
        out_of_memory = spawner.group is not None and spawner.group.killed()
        return self._result(captured, store, out_of_memory)

    def _limits(self, spawner: Spawner) -> dict[str, int | None]:
        """Limits the child sets itself; memory is bounded for all processes together where there is a group for it."""
        if spawner.group is not None:
            spawner.group.limit(self.limits.memory_mb << 20)
        return {
            "cpu_s": self.limits.cpu_s,
            "file_mb": self.limits.file_mb,
            "processes": self.limits.processes,
            "address_space_mb": self.limits.memory_mb if spawner.group is None else None,
        }

    def _disk_watch(self, store: LayerStore, upper: Path) -> Callable[[], bool]:
        """Whether the command uses too much: by its own files, or, with files it has unlinked, by the disk's loss."""
        budget, before = self.limits.disk_mb << 20, store.free_bytes()

        def over() -> bool:
            free = store.free_bytes()
            lost = before - free > 2 * budget + _OTHERS_BYTES
            return lost or free < _RESERVE_BYTES or disk_use(upper, budget, live=True) > budget

        return over

    def _result(self, captured: Captured, store: LayerStore, out_of_memory: bool) -> CommandResult:
        if store.free_bytes() < _RESERVE_BYTES:
            raise full(store.root)
        killed = captured.killed_by
        code: int | None = None
        if killed is None:
            code, killed = _judge(captured, self.limits, out_of_memory)
        text, omitted = captured.output.text()
        return CommandResult(code, text, omitted, captured.wall_s, killed)


def _judge(captured: Captured, limits: Limits, out_of_memory: bool) -> tuple[int | None, Kill | None]:
    """Exit code and kill reason of a command that no watcher of ours killed. Raises InfraFailure without a report."""
    report: dict[str, Any] | None = captured.report
    if report is None:
        if out_of_memory:
            return None, "memory"
        raise InfraFailure("the sandbox died under its command without saying how the command ended")
    if "failed" in report:
        if report["failed"].startswith("mount ") and report["errno"] in (errno.EINVAL, errno.EPERM, errno.ENODEV):
            raise unsupported(report["failed"])
        raise InfraFailure(f"cannot set up the sandbox of a command: {report['failed']}")
    code = os.waitstatus_to_exitcode(report["status"])
    if code == -signal.SIGKILL and out_of_memory:
        return None, "memory"
    if code == -signal.SIGXCPU or (code == -signal.SIGKILL and report["cpu_s"] >= limits.cpu_s):
        return None, "cpu"
    return code, None
