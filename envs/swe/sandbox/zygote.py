"""The spawner: an unprivileged process in its own mount namespace that clones one child per command.

A second one, forked from it on request, has the preload modules imported: its children run `python -m MODULE`
without starting an interpreter. Each clones the next child while a command runs, so that new namespaces are ready
when they are asked for. Standard library only; loaded from source by the lines in bootstrap.py.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from refork.envs.swe.sandbox import inside, linux, wire


def run(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Serve until the host is gone. Returns only in a child that is to run a module: its request."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # nohup and shells that put a job in the background have some ignored
    control, facts = socket.socket(fileno=config["control"]), inside.prepare()
    while True:
        try:
            _Spawner(control, config["host"], facts).serve()
        except _Twin as twin:
            control = twin.control
            _preload(config["preload"], control)
        except _Module as module:
            return module.request


class _Twin(Exception):
    """Raised in the process that is to become the preloaded spawner."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control


class _Module(Exception):
    """Raised in a command's child that is to run a module in this interpreter."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request


def _preload(names: list[str], control: socket.socket) -> None:
    try:
        for name in names:
            importlib.import_module(name)
    except BaseException as error:
        wire.send(control, {"error": f"cannot import {name}: {type(error).__name__}: {error}"})
        os._exit(1)
    sys.stdout.flush()  # what a module printed would else come out of every child
    gc.collect()
    gc.freeze()


class _Spare(NamedTuple):
    """A child in its own namespaces, as far as it can get without knowing its command."""

    door: socket.socket
    pid: int
    pidfd: int

    def close(self) -> None:
        self.door.close()
        os.close(self.pidfd)


class _Spawner:
    def __init__(self, control: socket.socket, host: int, facts: inside.Facts) -> None:
        self.control = control
        self.host = host
        self.facts = facts
        self.spare: _Spare | None = None

    def serve(self) -> NoReturn:
        """Answer requests; ends the process when the host's end of the socket, or the host itself, is gone."""
        wire.send(self.control, {"ready": os.getpid()})
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.host, select.POLLIN)
        while True:
            if self.spare is None:
                with contextlib.suppress(OSError):  # said when a command is asked for
                    self.spare = self._clone()
            ready = dict(poll.poll())
            self._reap()
            message = None if self.host in ready else wire.receive(self.control)
            if message is None:
                os._exit(0)
            request, descriptors = message
            if request["op"] == "preload":
                self._fork_twin(descriptors[0])
            else:
                self._start(request, descriptors)

    def _reap(self) -> None:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return

    def _fork_twin(self, descriptor: int) -> None:
        if os.fork() == 0:
            linux.die_with_parent()
            self.control.close()
            if self.spare is not None:
                self.spare.close()
            raise _Twin(socket.socket(fileno=descriptor))
        os.close(descriptor)

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        """Give a request to the spare child, or to a new one where there is none or it has died."""
        try:
            child, self.spare = self.spare or self._clone(), None
            try:
                wire.send(child.door, request, descriptors)
            except OSError:
                child.close()
                child = self._clone()
                wire.send(child.door, request, descriptors)
            wire.send(self.control, {"pid": child.pid}, [child.pidfd])
            child.close()
        except OSError as error:
            wire.send(self.control, {"error": str(error)})
        for descriptor in descriptors:
            os.close(descriptor)

    def _clone(self) -> _Spare:
        ours, theirs = socket.socketpair()
        pid, pidfd = linux.clone(linux.COMMAND_NAMESPACES)
        if pid == 0:
            ours.close()
            _become_command(theirs, self.facts)
        theirs.close()
        return _Spare(ours, pid, pidfd)


def _become_command(door: socket.socket, facts: inside.Facts) -> NoReturn:
    """In the child: prepare, wait for the request, run it, and end; raises _Module where a module is to run."""
    failure: Exception | None = None
    try:
        inside.prepare_namespaces(facts)
    except Exception as error:
        failure = error
    message = wire.receive(door)
    if message is None:
        os._exit(0)
    request, (output, status) = message
    inside.take_descriptors(output, status)
    try:
        if failure is not None:
            raise failure
        inside.enter(request, facts)
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
        raise _Module(request)
    inside.watch(main)
