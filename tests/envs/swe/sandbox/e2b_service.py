"""A stand-in for the sandbox service on 127.0.0.1, that the real SDK talks to unmodified.

Paths, models and process messages are those of the SDK's own generated client. A sandbox is a real folder, in which
processes run as root of mount and process namespaces; a snapshot is a copy of it. It needs root. What one host cannot
show: memory in snapshots, machines that are isolated from each other, a kernel and control groups of their own.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from e2b.api.client.models import Error, ListedSandbox, NewSandboxV2, SnapshotInfo
from e2b.api.client.models import Sandbox as SandboxModel
from e2b.api.client.models.sandbox_state import SandboxState
from e2b.envd.process import process_pb

KEY = "e2b_0123456789abcdef0123456789abcdef01234567"
TEAM = "team"
VERSION = "0.6.4"
_START = """
set -e; mount --bind "$0" "$0"; cd "$0"
mount --rbind /usr usr
mount -t tmpfs -o mode=755 none dev; mkdir dev/pts
for device in null zero full random urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
mount -t proc none proc
pivot_root . mnt; cd /; umount -l /mnt
exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/root E2B_SANDBOX=true /bin/sh -c 'cd "$0" && exec "$@"' "$@"
"""
_ETC = {
    "passwd": "root:x:0:0::/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n",
    "group": "root:x:0:\nuser:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
}


def make_template(root: Path) -> None:
    """What a template of the service holds: a system with Python, and a home."""
    for name in ("usr", "proc", "sys", "dev", "mnt", "run", "etc", "tmp", "root", "home/user", "var/tmp"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name, text in _ETC.items():
        (root / "etc" / name).write_text(text)
    shutil.copytree("/etc/alternatives", root / "etc/alternatives", symlinks=True)
    (root / "tmp").chmod(0o1777)
    os.chown(root / "home/user", 1000, 1000)


@dataclass
class Machine:
    """One running sandbox."""

    name: str
    template: str
    root: Path
    metadata: dict[str, str]
    internet: bool
    ends: float
    started: datetime.datetime = field(default_factory=lambda: datetime.datetime.now(datetime.UTC))
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.root)


@dataclass
class Fault:
    """For the next `times` requests to a path that begins so: answer `status`, or wait `seconds` first."""

    path: str
    status: int = 0
    times: int = 1
    seconds: float = 0.0


class Service:
    """The state of the stand-in. Tests look into it and put `faults` into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines: dict[str, Machine] = {}
        self.snapshots: dict[str, tuple[str, Path]] = {}
        """Name and folder by snapshot id."""
        self.made: dict[str, str] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.lock = threading.Lock()
        make_template(folder / "base")

    def create(self, body: NewSandboxV2, key: str | None) -> SandboxModel | None:
        with self.lock:
            if key and key in self.made:
                return self._model(self.machines[self.made[key]])
            source = self.folder / "base" if body.template_id == "base" else None
            if body.template_id in self.snapshots:
                source = self.snapshots[body.template_id][1]
            if source is None:
                return None
            name = f"i{uuid.uuid4().hex[:16]}"
            _copy(source, self.folder / name)
            metadata = body.metadata if isinstance(body.metadata, dict) else {}
            ends = time.monotonic() + float(body.timeout or 300)
            machine = Machine(
                name, body.template_id, self.folder / name, metadata, body.allow_internet_access is not False, ends
            )
            self.machines[name] = machine
            if key:
                self.made[key] = name
            return self._model(machine)

    def _model(self, machine: Machine) -> SandboxModel:
        return SandboxModel(machine.template, machine.name, "client", VERSION, envd_access_token=f"t-{machine.name}")

    def listed(self, metadata: dict[str, str]) -> list[ListedSandbox]:
        found = [m for m in self.machines.values() if metadata.items() <= m.metadata.items()]
        running = SandboxState.RUNNING
        return [
            ListedSandbox(
                m.template, m.name, "client", m.started, m.started, 2, 512, 1024, running, VERSION, metadata=m.metadata
            )
            for m in found
        ]

    def freeze(self, machine: Machine, name: str) -> SnapshotInfo:
        folder = self.folder / f"snapshot-{uuid.uuid4().hex[:16]}"
        _copy(machine.root, folder)
        snapshot_id = f"{TEAM}/{name}:default"
        with self.lock:
            self.snapshots[snapshot_id] = (name, folder)
        return SnapshotInfo(snapshot_id, [snapshot_id])

    def kill(self, name: str) -> bool:
        with self.lock:
            machine = self.machines.pop(name, None)
        if machine:
            machine.end()
        return machine is not None

    def delete(self, snapshot_id: str) -> bool:
        with self.lock:
            found = self.snapshots.pop(snapshot_id, None)
        if found:
            shutil.rmtree(found[1])
        return found is not None

    def fault(self, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if path.startswith(fault.path) and fault.times:
                    fault.times -= 1
                    return fault
        return None


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


class Handler(BaseHTTPRequestHandler):
    """One request of the SDK, told apart by the header that names a sandbox."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        return

    def _any(self) -> None:
        service = self.server.service
        url = urllib.parse.urlsplit(self.path)
        self.query = dict(urllib.parse.parse_qsl(url.query))
        self.body = self._read()
        service.requests.append((self.command, url.path))
        service.bodies.append(self.body)
        if fault := service.fault(url.path):
            time.sleep(fault.seconds)
            if fault.status:
                self._error(fault.status, "injected")
                return
        if "E2b-Sandbox-Id" in self.headers:
            self._in_sandbox(url.path)
        elif self.headers.get("X-API-KEY") != KEY:
            self._error(401, "Invalid API key")
        else:
            self._control([urllib.parse.unquote(part) for part in url.path.strip("/").split("/")])

    do_GET = do_POST = do_DELETE = _any

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, value: Any = None, kind: str = "application/json") -> None:
        data = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _error(self, status: int, message: str) -> None:
        self._answer(status, Error(status, message).to_dict())

    def _control(self, parts: list[str]) -> None:
        service = self.server.service
        match self.command, parts:
            case "POST", ["v2", "sandboxes"]:
                made = service.create(NewSandboxV2.from_dict(json.loads(self.body)), self.headers["Idempotency-Key"])
                self._answer(201, made.to_dict()) if made else self._error(404, "template not found")
            case "GET", ["v2", "sandboxes"]:
                wanted = dict(urllib.parse.parse_qsl(urllib.parse.unquote(self.query.get("metadata", ""))))
                self._page([found.to_dict() for found in service.listed(wanted)])
            case "DELETE", ["sandboxes", name]:
                self._answer(204) if service.kill(name) else self._error(404, "sandbox not found")
            case "GET", ["snapshots"]:
                rows = [(name, SnapshotInfo(found, [found])) for found, (name, _) in service.snapshots.items()]
                self._page([info.to_dict() for name, info in rows if self.query.get("name", name) == name])
            case "DELETE", ["templates", name]:
                self._answer(204) if service.delete(name) else self._error(404, "template not found")
            case "POST", ["sandboxes", name, action] if name in service.machines:
                self._on_machine(service.machines[name], action)
            case _:
                self._error(404, f"{'/'.join(parts)} not found")

    def _page(self, rows: list[dict[str, Any]]) -> None:
        """Two rows at a time, so that the next page is always asked for."""
        start = int(self.query.get("nextToken", 0))
        data = json.dumps(rows[start : start + 2]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if start + 2 < len(rows):
            self.send_header("x-next-token", str(start + 2))
        self.end_headers()
        self.wfile.write(data)

    def _on_machine(self, machine: Machine, action: str) -> None:
        value = json.loads(self.body)
        if action == "snapshots":
            self._answer(201, self.server.service.freeze(machine, value["name"]).to_dict())
        elif action == "timeout":
            machine.ends = time.monotonic() + value["timeout"]
            self._answer(204)
        else:
            self._error(404, f"no action {action}")

    def _in_sandbox(self, path: str) -> None:
        name = self.headers["E2b-Sandbox-Id"]
        machine = self.server.service.machines.get(name)
        if machine is None:
            self._answer(502, {"sandboxId": name, "message": "The sandbox was not found", "code": 502})
        elif self.headers.get("X-Access-Token") != f"t-{name}":
            self._error(401, "wrong access token")
        elif path == "/health":
            self._answer(204)
        elif path == "/files" and self.command == "POST":
            self._write_file(machine)
        elif path == "/process.Process/Start":
            self._start(machine)
        else:
            self._error(404, f"{path} is not part of the stand-in")

    def _write_file(self, machine: Machine) -> None:
        path = self.query["path"]
        target = machine.root / path.lstrip("/")
        assert target.resolve().is_relative_to(machine.root)
        target.parent.mkdir(parents=True, exist_ok=True)
        kind = self.headers["Content-Type"]
        data = self.body
        if kind.startswith("multipart/"):
            whole = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + data)
            part = next(part for part in whole.walk() if not part.is_multipart())
            data = cast(bytes, part.get_payload(decode=True))
        target.write_bytes(data)
        self._answer(200, [{"name": target.name, "type": "file", "path": path}])

    def _start(self, machine: Machine) -> None:
        """Run a process and send its events, each in an envelope of flag, length and JSON."""
        request = process_pb.StartRequest.from_json(self.body[5:].decode())
        config = request.process
        assert config is not None
        assert base64.b64decode(self.headers["Authorization"].split()[1]) == b"root:"
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        command = ["unshare", "-m", "-p", "-f", "--kill-child", "/bin/sh", "-c", _START, str(machine.root)]
        process = subprocess.Popen(
            [*command, config.cwd or "/", config.cmd, *config.args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"]},
        )
        machine.processes.append(process)
        self._send({"start": {"pid": process.pid}})
        try:
            self._stream(process)
        except OSError:
            process.kill()  # the client is gone
        code = process.wait()
        if machine.name not in self.server.service.machines:
            self.connection.close()
            return
        self._send({"end": {"exitCode": code, "exited": code >= 0, "status": f"exit status {code}"}})
        self._envelope(2, b"{}")
        self.wfile.write(b"0\r\n\r\n")

    def _stream(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        complaint: list[bytes] = []
        stderr = process.stderr
        reader = threading.Thread(target=lambda: complaint.append(stderr.read()))
        reader.start()
        while data := os.read(process.stdout.fileno(), 1 << 15):
            self._send({"data": {"stdout": base64.b64encode(data).decode()}})
        reader.join()
        if complaint[0]:
            self._send({"data": {"stderr": base64.b64encode(complaint[0]).decode()}})

    def _send(self, event: dict[str, Any]) -> None:
        self._envelope(0, process_pb.StartResponse.from_json(json.dumps({"event": event})).to_json().encode())

    def _envelope(self, flags: int, data: bytes) -> None:
        piece = struct.pack(">BI", flags, len(data)) + data
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")


class Server(ThreadingHTTPServer):
    """The stand-in's door."""

    daemon_threads = True

    def __init__(self, service: Service) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.service = service

    def handle_error(self, request: Any, client_address: Any) -> None:
        return


@contextmanager
def serving(set_variable: Callable[[str, str], None]) -> Iterator[Service]:
    """Run the stand-in in a thread, its address and key put into the environment; in memory, where there is room."""
    memory = "/dev/shm"
    usable = os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    with tempfile.TemporaryDirectory(dir=memory if usable else None) as folder:
        yield from _serving(Service(Path(folder)), set_variable)


def _serving(service: Service, set_variable: Callable[[str, str], None]) -> Iterator[Service]:
    server = Server(service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    for name, value in {"E2B_API_URL": address, "E2B_SANDBOX_URL": address, "E2B_API_KEY": KEY}.items():
        set_variable(name, value)
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        for name in list(service.machines):
            service.kill(name)


def lacking() -> str:
    """What this host lacks to run the stand-in; '' for nothing."""
    if os.geteuid() != 0:
        return "the stand-in gives its sandboxes a root and a user of their own, for which it must be root"
    done = subprocess.run(["unshare", "-m", "-p", "-n", "-f", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


def open_backend(home: Path) -> Iterator[Any]:
    """An open e2b backend over a stand-in of its own, which holds nothing of it at the end but its bases."""
    from refork.envs.swe.sandbox.e2b import E2BBackend

    with pytest.MonkeyPatch.context() as patch, serving(patch.setenv) as service:
        patch.setenv("REFORK_HOME", str(home))
        made = E2BBackend()
        yield made
        made.close()
        assert not service.machines
        assert all(name.startswith("refork-base-") for name, _ in service.snapshots.values())
