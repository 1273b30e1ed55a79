"""The spawner: an unprivileged process in its own mount namespace that clones one child per command.

A second one, forked from it on request, has the preload modules imported: its children run `python -m MODULE`
without starting an interpreter. Standard library only; loaded from source by the bootstrap in spawner.py.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
from collections.abc import Mapping
from typing import Any

from refork.envs.swe.sandbox import inside, linux, wire


def run(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Serve until the host is gone. Returns, in the child that is to run it, a request for a module."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _Spawner(socket.socket(fileno=config["control"]), config["host"], config["preload"]).serve()


class _Spawner:
    def __init__(self, control: socket.socket, host: int, preload: list[str]) -> None:
        self.control = control
        self.host = host
        self.preload = preload
        self.facts = inside.prepare()

    def serve(self) -> Mapping[str, Any]:
        """Answer requests; ends the process when the host's end of the socket, or the host itself, is gone."""
        wire.send(self.control, {"ready": os.getpid()})
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.host, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            self._reap()
            message = None if self.host in ready else wire.receive(self.control)
            if message is None:
                os._exit(0)
            module = self._answer(*message)
            if module is not None:
                return module

    def _reap(self) -> None:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> Mapping[str, Any] | None:
        if request["op"] == "preload":
            self._fork_preloaded(descriptors[0])
            return None
        try:
            pid, pidfd = linux.clone(linux.COMMAND_NAMESPACES)
        except OSError as error:
            wire.send(self.control, {"error": str(error)})
            pid, pidfd = -1, -1
        if pid == 0:
            return self._become_command(request, *descriptors)
        if pid > 0:
            wire.send(self.control, {"pid": pid}, [pidfd])
            descriptors = [*descriptors, pidfd]
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _fork_preloaded(self, descriptor: int) -> None:
        if os.fork():
            os.close(descriptor)
            return
        linux.die_with_parent()
        self.control.close()
        self.control = socket.socket(fileno=descriptor)
        try:
            for name in self.preload:
                importlib.import_module(name)
        except BaseException as error:
            wire.send(self.control, {"error": f"cannot import {name}: {type(error).__name__}: {error}"})
            os._exit(1)
        gc.collect()
        gc.freeze()
        wire.send(self.control, {"ready": os.getpid()})

    def _become_command(self, request: Mapping[str, Any], output: int, status: int) -> Mapping[str, Any] | None:
        """In the child: never returns, except in the process that is to run a module."""
        inside.take_descriptors(output, status)
        try:
            inside.enter(request, self.facts)
        except Exception as error:
            inside.report({"failed": str(error), "errno": getattr(error, "errno", None)})
            os._exit(1)
        try:
            os.chdir(request["cwd"])
            main = os.fork() if request["module"] else inside.start(request)
        except OSError as error:
            inside.cannot_start(request, error)
            os._exit(0)
        if main == 0:
            os.close(inside.STATUS)  # the module must not be able to write the report on itself
            return request
        inside.watch(main)
        return None
