"""Inside the container: process 1. Takes requests from stdin, answers on stdout, one at a time.

A frame is two big-endian 32-bit lengths, a JSON header and a body. Bodies are received into memory that is given back
to the kernel after the request, so that no later command finds another's files in its own heap. Standard library only
and Python 3.9 syntax: it must run on the interpreter of any image.
"""

from __future__ import annotations

import base64
import gc
import json
import mmap
import os
import runpy
import shutil
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

from refork.envs.swe.sandbox.supervisor_exec import become_command, drop_rights, exec_command, kill_all, prepare
from refork.envs.swe.sandbox.supervisor_files import delete, get_file, put_file
from refork.envs.swe.sandbox.supervisor_ipc import clear_folders, remove_system_v, system_v_objects
from refork.envs.swe.sandbox.supervisor_tree import Row, Tree
from refork.envs.swe.sandbox.supervisor_warm import WarmCommand, WarmRun, Zygote
from refork.envs.swe.sandbox.supervisor_watch import Command, HostGone, Watch
from refork.envs.swe.sandbox.warm import become_fresh

HEADER = struct.Struct(">II")


def _read_exactly(target: memoryview) -> None:
    done = 0
    while done < len(target):
        count = os.readv(0, [target[done:]])
        if count == 0:
            raise HostGone
        done += count


def receive() -> tuple[dict[str, Any], mmap.mmap | None]:
    """The next request and its body. Raises HostGone at the end of the stream."""
    lengths = bytearray(HEADER.size)
    _read_exactly(memoryview(lengths))
    header_size, body_size = HEADER.unpack(lengths)
    header = bytearray(header_size)
    _read_exactly(memoryview(header))
    if not body_size:
        return json.loads(header), None
    body = mmap.mmap(-1, body_size)
    _read_exactly(memoryview(body))
    return json.loads(header), body


def send(header: dict[str, Any], body: bytes = b"") -> None:
    """Write one frame."""
    head = json.dumps(header).encode()
    data = memoryview(HEADER.pack(len(head), len(body)) + head + body)
    while data:
        data = data[os.write(1, data) :]


class Supervisor:
    """Answers the host's requests; every method named `op_...` takes the request and its body."""

    def __init__(self, wakeup: int) -> None:
        self.wakeup = wakeup
        self.tree = Tree([], [], 0)
        self.reported: dict[str, Row] = {}
        self.filters: list[bytes] = []
        self.uid = 0
        self.preload: list[str] = []
        self.zygote: Zygote | None = None

    def serve(self) -> None:
        """Until the host is gone."""
        while True:
            request, body = receive()
            operation: Callable[..., tuple[dict[str, Any], bytes]] = getattr(self, "op_" + request["op"])
            try:
                header, payload = operation(request, memoryview(body) if body is not None else memoryview(b""))
            except (OSError, ValueError) as error:
                header, payload = told(error), b""
            send(header, payload)
            payload = b""
            self._settle()
            self._renew_zygote()

    def _settle(self) -> None:
        """While the host is busy with the answer: what the next request needs anyway."""
        if self.tree.dirty:
            clear_folders()
            if objects := system_v_objects():
                self._remove_system_v(objects)
        self.tree.scan()

    def _remove_system_v(self, objects: list[tuple[str, int]]) -> None:
        """In a child, since only their own user may."""
        pid = os.fork()
        if pid == 0:
            try:
                drop_rights(self.uid, [])
                remove_system_v(objects)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)

    def op_hello(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """Learn what to watch; start the interpreter that warm commands are forked from."""
        self.uid = request["uid"]
        self.tree = Tree(request["roots"], request["volatile"], self.uid)
        self.filters = [base64.b64decode(program) for program in request["filters"]]
        usual = os.path.realpath(shutil.which("python") or "") == os.path.realpath(sys.executable)
        self.preload = request["preload"] if usual else []
        self._renew_zygote()
        gc.collect()
        gc.freeze()
        return {}, b""

    def _renew_zygote(self) -> None:
        """Have one, if there is anything to preload: none yet, or the last one was killed for memory."""
        if self.preload and (self.zygote is None or not self.zygote.alive):
            self.zygote = Zygote(self.preload, self.filters)

    def op_run(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """Run a command to its end; afterwards nothing of it lives."""
        self.tree.touch()
        request["uid"] = self.uid
        read_end, write_end = os.pipe()
        command = self._start(request, write_end)
        os.close(write_end)
        watch = Watch(command, read_end, request["limits"], self._disk_gauge(request["limits"]["disk_bytes"]))
        watch.wait()
        kill_all(self.uid, [self.zygote.pid] if self.zygote else [])
        if isinstance(command, WarmRun) and command.status is None:
            command.settle()
        header = watch.finish()
        if self.tree.survey() > request["limits"]["disk_bytes"] and header["killed_by"] is None:
            header.update(code=None, killed_by="disk")
        header["free_bytes"] = free_bytes(self.tree.roots[0])
        return header, header.pop("body")

    def _start(self, request: dict[str, Any], write_end: int) -> Command:
        if request["warm"] and self.zygote and self.zygote.has(request["argv"][2]):
            return self.zygote.start(request, write_end, self.wakeup)
        request["warm"] = False
        pid = os.fork()
        if pid == 0:
            become_command(request, write_end, self.filters)
            exec_command(request)
        return Command(pid, self.wakeup)

    def _disk_gauge(self, most: int) -> Callable[[], bool]:
        """Tells whether the state is over `most` bytes; walks it only while the disk below is filling up."""
        free = free_bytes(self.tree.roots[0])
        return lambda: free - free_bytes(self.tree.roots[0]) > 1 << 20 and self.tree.holds_more_than(most)

    def op_put(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """Write files, or delete where the size is -1: `files` holds [path, size], contents follow each other."""
        offset = 0
        for path, size in request["files"]:
            self.tree.touch()
            if size < 0:
                delete(self.tree, path)
            else:
                put_file(self.tree, path, body[offset : offset + size])
                offset += size
        return {}, b""

    def op_get(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """The first bytes of one file."""
        return {}, get_file(self.tree, request["path"], request["max_bytes"])

    def op_scan(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """What changed since it was last told."""
        self.tree.scan()
        changed, gone = self.tree.changes_from(self.reported)
        self.reported = dict(self.tree.rows)
        return {"changed": changed, "gone": gone}, b""

    def op_apply(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """Remove and make paths (see Tree.apply), then report as op_scan does."""
        self.tree.apply(request["remove"], request["make"], body)
        return self.op_scan(request, body)

    def op_read(self, request: dict[str, Any], body: memoryview) -> tuple[dict[str, Any], bytes]:
        """Contents of `paths`, one after the other, with their sizes."""
        contents = [self.tree.read(path) for path in request["paths"]]
        return {"sizes": [len(content) for content in contents]}, b"".join(contents)


def told(error: Exception) -> dict[str, Any]:
    """A failure as the header of a reply."""
    fields = (
        {"errno": error.errno, "text": error.strerror, "path": error.filename} if isinstance(error, OSError) else {}
    )
    return {"error": type(error).__name__, "text": str(error), **fields}


def free_bytes(path: str) -> int:
    """Bytes left on the file system under `path`."""
    info = os.statvfs(path)
    return info.f_bavail * info.f_frsize


def main(path: list[str]) -> None:
    """Serve until the host is gone, as process 1; in a child that is a warm command: run it with `path` as sys.path."""
    if os.getpid() != 1:
        raise SystemExit("the supervisor kills and clears whatever it finds: it runs as process 1 of a container only")
    read_end, wakeup = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    prepare()
    try:
        Supervisor(read_end).serve()
    except HostGone:
        return
    except WarmCommand as command:
        request = command.request
    sys.path[:] = path
    module = become_fresh(request)
    runpy._run_module_as_main(module)  # type: ignore[attr-defined]
