"""One machine of the service under our supervisor: asked request by request, with its last known content."""

from __future__ import annotations

import base64
import io
import time
import uuid
from collections.abc import Mapping
from typing import IO, Any

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import Entry
from refork.envs.swe.sandbox.e2b_boot import ARCHIVE, INLINE_BYTES, PREPARE, ask_command, pack, unpack
from refork.envs.swe.sandbox.e2b_client import LEASE_S, Service, warned
from refork.envs.swe.sandbox.e2b_inside import FOLDER
from refork.envs.swe.sandbox.machine import MACHINE_ERRORS

TRANSFER_S = 300.0


class Machine:
    """Not thread-safe. After an InfraFailure of a request it is broken: what state it is in nobody knows."""

    def __init__(self, service: Service, handle: Any) -> None:
        self.service, self.name = service, str(handle.sandbox_id)
        self.rows: dict[str, Entry] = {}
        """What is below /testbed and /tmp as of the last request."""
        self.revision = 0
        self.broken: str | None = None
        self._handle = handle
        self._serial = ""
        self._lease_ends = time.monotonic() + LEASE_S

    def prepare(self, archive: IO[bytes]) -> None:
        """Unpack `archive` (see e2b_boot) as root. Raises InfraFailure."""
        self.write(ARCHIVE, archive)
        self._shell(PREPARE, TRANSFER_S)

    def write(self, path: str, data: IO[bytes]) -> None:
        """Write one file as root; it is sent in pieces."""
        what = f"{path} could not be written in sandbox {self.name}"
        files = self._handle.files

        def send() -> None:
            data.seek(0)  # an attempt that failed may have read some of it
            files.write(path, data, user="root", request_timeout=TRANSFER_S)

        self.service.call(what, send)

    def ask(self, op: str, *, body: bytes = b"", wait_s: float = 60.0, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """One request; (header, body) of its reply. Raises InfraFailure, and OSError or ValueError if refused."""
        if self.broken:
            raise InfraFailure(self.broken)
        try:
            return self._ask({"op": op, "has": self._serial, **fields}, body, wait_s)
        except InfraFailure as failure:
            self.broken = str(failure)
            raise

    def _ask(self, request: Mapping[str, Any], body: bytes, wait_s: float) -> tuple[dict[str, Any], bytes]:
        self._renew(wait_s)
        reply = unpack(self._shell(ask_command(self._argument(pack(request, body))), wait_s))
        if reply is None:
            raise InfraFailure(f"sandbox {self.name} gave no answer to {request['op']!r}")
        self._learn(reply["tree"])
        if "error" in reply["header"]:
            raise self._told(reply["header"])
        return reply["header"], base64.b64decode(reply["body"])

    def _argument(self, packed: bytes) -> str:
        text = base64.b64encode(packed).decode()
        if len(text) <= INLINE_BYTES:
            return text
        path = f"{FOLDER}/request-{uuid.uuid4().hex}"
        self.write(path, io.BytesIO(packed))
        return f"@{path}"

    def _shell(self, command: str, wait_s: float) -> str:
        """Standard output of a shell command of root that has to succeed."""
        commands, e2b = self._handle.commands, self.service.sdk

        def run() -> Any:
            try:
                return commands.run(command, user="root", cwd="/", timeout=wait_s)
            except e2b.CommandExitException as error:
                raise InfraFailure(f"sandbox {self.name}: {(error.stderr or error.stdout).strip()[-500:]}") from None

        return str(self.service.call(f"sandbox {self.name} does not answer", run, repeat=False).stdout)

    def _learn(self, tree: Mapping[str, Any]) -> None:
        if tree["whole"]:
            self.rows = {}
        for path, (kind, mode, digest) in tree["changed"].items():
            self.rows[path] = Entry(kind, mode, digest)
        for path in tree["gone"]:
            del self.rows[path]
        self.revision += tree["serial"] != self._serial
        self._serial = tree["serial"]

    def _told(self, header: Mapping[str, Any]) -> Exception:
        """The error of a reply; what is the machine's fault is an InfraFailure."""
        if header["error"] == "ValueError":
            return ValueError(header["text"])
        if header["errno"] in MACHINE_ERRORS:
            return InfraFailure(f"in sandbox {self.name}: {header['text']} ({header['path']})")
        return OSError(header["errno"], header["text"], header["path"])

    def _renew(self, wait_s: float) -> None:
        """Before the lease has run half down, or would end during a request."""
        now = time.monotonic()
        if self._lease_ends - now < max(LEASE_S / 2, wait_s + 60):
            lease = max(LEASE_S, wait_s + 120)
            self.service.renew(self.name, lease)
            self._lease_ends = now + lease

    def end(self) -> None:
        """Kill it. Where the service does not answer, a later sweep will."""
        self.broken = self.broken or f"sandbox {self.name} was closed"
        with warned(f"sandbox {self.name} was not ended"):
            self.service.kill(self.name)
