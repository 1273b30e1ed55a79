"""Inside the container: an interpreter with the test runner imported, whose forks run `python -m MODULE`.

It is a child of the supervisor, made before any request has brought contents into memory that commands would inherit.
Standard library only and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
from typing import Any

from refork.envs.swe.sandbox import wire
from refork.envs.swe.sandbox.supervisor_exec import become_command
from refork.envs.swe.sandbox.supervisor_watch import Command


class WarmCommand(Exception):
    """Raised in a forked child: unwind the supervisor and run a module as the main program."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__()
        self.request = {**request, "environment": request["env"], "module": request["argv"][2]}


class Zygote:
    """The supervisor's handle on the preloaded interpreter."""

    def __init__(self, preload: list[str], filters: list[bytes]) -> None:
        self.link, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.link.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_IGN)  # as in every Python that starts
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            _serve(theirs, preload, filters)
        theirs.close()
        self.alive = True
        self._modules: list[str] | None = None

    def has(self, module: str) -> bool:
        """Whether it could import `module`; waits until it is ready."""
        if self._modules is None:
            message = wire.receive(self.link)
            self._modules = message[0]["modules"] if message else []
            self.alive = message is not None
        return self.alive and module in self._modules

    def start(self, request: dict[str, Any], write_end: int, wakeup: int) -> WarmRun:
        """Let it fork and run the command of `request`."""
        wire.send(self.link, request, [write_end])
        return WarmRun(self, wakeup)


class WarmRun(Command):
    """A command that is a child of the zygote, which tells how it ended."""

    def __init__(self, zygote: Zygote, wakeup: int) -> None:
        super().__init__(-1, wakeup)
        self.zygote = zygote
        self.sources = [wakeup, zygote.link.fileno()]

    def look(self, ready: list[int]) -> None:
        super().look(ready)
        if self.zygote.link.fileno() in ready:
            self.settle()

    def settle(self) -> None:
        """Take the zygote's report, waiting for it. A zygote that is gone was killed for memory, its child too."""
        message = wire.receive(self.zygote.link)
        self.zygote.alive = message is not None
        self.status, self.cpu_s = (message[0]["status"], message[0]["cpu_s"]) if message else (9, 0.0)


def _serve(link: socket.socket, preload: list[str], filters: list[bytes]) -> None:
    """In the zygote: never returns; raises WarmCommand in the children that are to run a command."""
    modules = [name for name in preload if _imports(name)]
    gc.collect()
    gc.freeze()
    wire.send(link, {"modules": modules})
    while True:
        message = wire.receive(link)
        if message is None:
            os._exit(0)
        request, (write_end,) = message
        pid = os.fork()
        if pid == 0:
            become_command(request, write_end, filters)
            raise WarmCommand(request)
        os.close(write_end)
        _, status, usage = os.wait4(pid, 0)
        wire.send(link, {"status": status, "cpu_s": usage.ru_utime + usage.ru_stime})


def _imports(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
