"""The host's handle on one spawner: starts it, asks it for commands, kills them."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox import wire
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.envs.swe.sandbox.bootstrap import stage_command
from refork.envs.swe.sandbox.cgroup import MemoryGroup
from refork.envs.swe.sandbox.probe import unsupported

_ROOT_UIDS = (1_900_001_000, 65_533)
"""Ids a spawner started by root takes: outside every range that systems hand out, or the last of a small range."""
_ANSWER_S = 60.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class System:
    """What one spawner is made for; two sandboxes with equal ones share it."""

    store: Path
    python_env: Path | None
    preload: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Running:
    """A started command: where its output and its report come out, and process 1 of its namespace."""

    output: int
    status: int
    pidfd: int

    def kill(self) -> None:
        """Kill process 1 and so everything in its namespace."""
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return

    def end(self) -> None:
        """Kill what is left, wait until nothing of it can write any more, and close the descriptors."""
        self.kill()
        select.select([self.pidfd], [], [])
        for descriptor in (self.output, self.status, self.pidfd):
            os.close(descriptor)


def sandbox_owner() -> int | None:
    """The host's user id that sandboxes run under when this process is root; None: under its own."""
    if os.geteuid() != 0:
        return None
    for line in Path("/proc/self/uid_map").read_text().splitlines():
        first, _, count = map(int, line.split())
        for uid in _ROOT_UIDS:
            if first <= uid < first + count:
                return uid
    return None


class Spawner:
    """One stage process, later the spawner, and its preloaded twin once a warm command asked for it."""

    def __init__(self, system: System, mount_point: Path, group: MemoryGroup | None = None) -> None:
        self.system = system
        self.group = group
        self._warm: socket.socket | None = None
        self._warm_refused = ""
        self._control, theirs = socket.socketpair()
        host = os.pidfd_open(os.getpid())
        try:
            self._process = self._launch(mount_point, theirs.fileno(), host)
        finally:
            theirs.close()
            os.close(host)
        try:
            if group is not None:
                group.add(self._process.pid)
            self._expect_ready(self._control)
        except UnsupportedHost:
            self.close()
            raise
        self._measure()

    def _launch(self, mount_point: Path, control: int, host: int) -> subprocess.Popen[bytes]:
        prefix = sys.base_prefix
        python = f"bin/python{sys.version_info.major}.{sys.version_info.minor}"
        shared = str(sysconfig.get_config_var("INSTSONAME") or "")
        config = {
            "control": control,
            "uid": sandbox_owner(),
            "mount_point": str(mount_point),
            "store": str(self.system.store),
            "prefix": prefix,
            "interpreter": python,
            "libpython": shared if ".so" in shared and prefix not in ("/usr", "/") else None,
            "python_env": str(self.system.python_env) if self.system.python_env else None,
            "environment": dict(self.system.environment),
        }
        zygote = {"control": control, "host": host, "preload": self.system.preload}
        return subprocess.Popen(
            stage_command(sys.executable, config, zygote),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(control, host),
            env={},
            cwd="/",
            start_new_session=True,
        )

    def _expect_ready(self, connection: socket.socket) -> None:
        connection.settimeout(_ANSWER_S)
        try:
            answer = wire.receive(connection)
        except (TimeoutError, EOFError, ConnectionError) as error:
            raise UnsupportedHost(f"the sandbox spawner did not start: {error}; {self._last_words()}") from error
        if answer is None:
            raise UnsupportedHost(f"the sandbox spawner ended at its start; {self._last_words()}")
        if "error" in answer[0]:
            raise unsupported(str(answer[0]["error"]))

    def _measure(self) -> None:
        if self.group is not None:
            self.group.measure()

    def _last_words(self) -> str:
        """What the spawner wrote to its own output so far, for an error message."""
        stream = self._process.stdout
        if stream is None or stream.closed or not select.select([stream], [], [], 0.2)[0]:
            return "it said nothing"
        return "it said: " + os.read(stream.fileno(), 4096).decode(errors="replace").strip()

    def can_warm(self) -> bool:
        """Start the preloaded twin if there is none; False when its modules cannot be imported in the sandbox."""
        if self._warm is None and not self._warm_refused and self.system.preload:
            ours, theirs = socket.socketpair()
            wire.send(self._control, {"op": "preload"}, [theirs.fileno()])
            theirs.close()
            try:
                self._expect_ready(ours)
                self._warm = ours
                self._measure()
            except UnsupportedHost as error:
                ours.close()
                self._warm_refused = str(error)
                _LOG.warning("no preloaded interpreter, every warm command starts its own: %s", error)
        return self._warm is not None

    def spawn(self, request: Mapping[str, Any], *, warm: bool) -> Running:
        """Start a command. Raises InfraFailure when the spawner is gone or the kernel refuses the clone."""
        connection = self._warm if warm and self._warm else self._control
        output, their_output = os.pipe()
        status, their_status = os.pipe()
        try:
            answer = self._ask(connection, {"op": "run", **request}, [their_output, their_status])
        except BaseException:
            os.close(output)
            os.close(status)
            self.close()  # half an exchange: the next answer would be the last one's
            raise
        finally:
            os.close(their_output)
            os.close(their_status)
        if "error" in answer[0]:
            os.close(output)
            os.close(status)
            raise InfraFailure(f"cannot start a command: {answer[0]['error']}")
        return Running(output, status, answer[1][0])

    def _ask(
        self, connection: socket.socket, request: Mapping[str, Any], descriptors: list[int]
    ) -> tuple[dict[str, Any], list[int]]:
        try:
            wire.send(connection, dict(request), descriptors)
            answer = wire.receive(connection)
        except OSError as error:
            raise InfraFailure(f"the sandbox spawner is gone: {error}") from error
        if answer is None:
            raise InfraFailure(f"the sandbox spawner ended; {self._last_words()}")
        return answer

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """End the spawner and whatever it started; closing twice is allowed."""
        for connection in (self._warm, self._control):
            if connection is not None:
                connection.close()
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self.group is not None:
            self.group.close()
