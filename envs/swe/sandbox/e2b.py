"""Sandboxes in machines of a service that speaks E2B's interface: E2B itself, or a cluster of one's own.

One sandbox is one machine. A snapshot is the service's, of files and memory; a fork is a new machine from it. Commands
go through one request each (e2b_inside), so that the limits, the state ids and what is left out of output are those of
the other backends. `warm` is not used: no process of ours lives between two requests.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.swe.sandbox.base import (
    DEFAULT_ENVIRONMENT,
    WORKSPACE,
    Backend,
    CommandResult,
    Entry,
    Finding,
    Limits,
    Sandbox,
    SandboxSpec,
    digest_state,
)
from refork.envs.swe.sandbox.capture import FLOOD_BYTES, join_halves
from refork.envs.swe.sandbox.e2b_client import Service, sweep
from refork.envs.swe.sandbox.e2b_machine import TRANSFER_S, Machine
from refork.envs.swe.sandbox.e2b_probe import probe
from refork.envs.swe.sandbox.e2b_states import States
from refork.envs.swe.sandbox.manifest import base_manifest, difference
from refork.envs.swe.sandbox.trees import disk_use

TEMPLATE = "REFORK_E2B_TEMPLATE"
"""Environment variable: the template that bases are made on (default: base). It needs tar, gzip and Python 3.9."""
FULL_BYTES = 16 << 20
"""With less than this free in a machine, nothing a command reports is believed."""
GRACE_S = 30.0
"""How long after a command's time the service may take to answer before the machine counts as lost."""


class E2BBackend(Backend):
    """Opens sandboxes in the service that E2B_API_KEY, E2B_DOMAIN, E2B_API_URL and E2B_SANDBOX_URL name."""

    name = "e2b"

    def __init__(self, *, run: str = "") -> None:
        """Removes what dead owners of this host left there. Raises UnsupportedHost without package or valid key."""
        self._process = os.getpid()
        self.service = Service(run)
        self.states = States(self.service, os.environ.get(TEMPLATE) or "base")
        self._sandboxes: set[E2BSandbox] = set()
        sweep(self.service)

    def open(self, spec: SandboxSpec, ref: StateRef | None = None) -> E2BSandbox:
        if os.getpid() != self._process:
            raise InfraFailure("an e2b backend cannot be used across a fork: make one in each process")
        sandbox = E2BSandbox(self, spec, ref or StateRef(digest_state(spec.base_id, {})))
        self._sandboxes.add(sandbox)
        return sandbox

    def retain(self, ref: StateRef) -> None:
        """Keep the snapshot of `ref` after this backend is closed, until `collect` is not told of it any more."""
        if "name" in ref.payload:
            self.states.keep(ref.payload["name"])

    def collect(self, live: Iterable[StateRef]) -> None:
        """Of the retained snapshots, keep only those in `live`."""
        self.states.collect({ref.payload["name"] for ref in live if "name" in ref.payload})

    def forget(self, sandbox: E2BSandbox) -> None:
        """Called by a sandbox that is closed."""
        self._sandboxes.discard(sandbox)

    def close(self) -> None:
        if os.getpid() != self._process:
            return
        for sandbox in list(self._sandboxes):
            sandbox.close()
        self.states.close()

    @classmethod
    def probe(cls) -> list[Finding]:
        return probe()


class E2BSandbox(Sandbox):
    """A sandbox that at the moment lives in some machine of the service."""

    def __init__(self, backend: E2BBackend, spec: SandboxSpec, ref: StateRef) -> None:
        self.spec = spec
        self._backend = backend
        self._base, self._base_bytes = _base_of(spec.base, spec.base_id)
        self._changes: Mapping[str, Entry] = {}
        self._revision = -1
        self._machine: Machine | None = self._started(ref)

    @property
    def machine_name(self) -> str:
        """The service's id of the machine this sandbox lives in at the moment."""
        return self._live().name

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        warm: bool = False,
    ) -> CommandResult:
        limits = limits or self.spec.limits
        whole = {**DEFAULT_ENVIRONMENT, **self.spec.environment, **(environment or {})}
        if not argv or any("\0" in text for text in (*argv, cwd, *whole, *whole.values())):
            raise ValueError(f"a command needs a name and no NUL in it: {list(argv)!r} in {cwd!r}")
        bounds = {
            **asdict(limits),
            "disk_bytes": (limits.disk_mb << 20) + self._base_bytes,
            "flood_bytes": FLOOD_BYTES,
        }
        machine = self._live()
        header, body = machine.ask(
            "run", argv=list(argv), cwd=cwd, env=whole, limits=bounds, wait_s=limits.wall_s + GRACE_S
        )
        if header["free_bytes"] < FULL_BYTES:
            raise InfraFailure(f"the disk of sandbox {machine.name} is full: choose a larger template")
        if header["killed_by"] == "disk":  # the only state that does not depend on how far a kill came too late
            self._replace(self._started(StateRef(digest_state(self.spec.base_id, {}))))
        output, omitted = _text(body, header["head"], header["total"])
        return CommandResult(header["code"], output, omitted, header["wall_s"], header["killed_by"])

    def _live(self) -> Machine:
        if self._machine is None:
            raise ValueError("this sandbox is closed")
        return self._machine

    def put(self, files: Mapping[str, bytes | None]) -> None:
        body = b"".join(content for content in files.values() if content is not None)
        rows = [[path, -1 if content is None else len(content)] for path, content in files.items()]
        self._live().ask("put", files=rows, body=body, wait_s=TRANSFER_S)

    def get(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        return self._live().ask("get", path=path, max_bytes=max_bytes, wait_s=TRANSFER_S)[1]

    @property
    def changes(self) -> Mapping[str, Entry]:
        machine = self._live()
        if machine.revision != self._revision:
            self._changes, self._revision = difference(self._base, machine.rows), machine.revision
        return self._changes

    def snapshot(self) -> StateRef:
        changes = self.changes
        state_id = digest_state(self.spec.base_id, changes)
        if not changes:
            return StateRef(state_id)
        name, snapshot_id = self._backend.states.freeze(self._live(), state_id, changes)
        return StateRef(state_id, {"snapshot": snapshot_id, "name": name})

    def restore(self, ref: StateRef) -> None:
        self._live()
        self._replace(self._started(ref))

    def _started(self, ref: StateRef) -> Machine:
        """A machine that was found to hold `ref`. Raises StateMismatch, InfraFailure; then none stays."""
        states = self._backend.states
        if "snapshot" in ref.payload:
            machine = states.start(ref.payload["snapshot"])
        elif ref.state_id == digest_state(self.spec.base_id, {}):
            machine = states.start_base(self.spec)
        else:
            raise InfraFailure(f"state {ref.state_id[:12]} has no snapshot in the service")
        try:
            machine.ask("scan", wait_s=TRANSFER_S)
            _verify(ref, self.spec.base_id, states.changes(ref.state_id), difference(self._base, machine.rows))
        except BaseException:
            machine.end()
            raise
        return machine

    def _replace(self, machine: Machine) -> None:
        before, self._machine, self._revision = self._live(), machine, -1
        before.end()

    def fork(self) -> E2BSandbox:
        return self._backend.open(self.spec, self.snapshot())

    def close(self) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            self._backend.forget(self)
            machine.end()


def _text(body: bytes, head: int, total: int) -> tuple[str, int]:
    if total == len(body):
        return body.decode(errors="replace"), 0
    return join_halves(body[:head], body[head:], total)


def _verify(ref: StateRef, base_id: str, wanted: Mapping[str, Entry] | None, found: Mapping[str, Entry]) -> None:
    """Raises StateMismatch when the machine does not hold what it should; names the path if what it held is known."""
    state_id = digest_state(base_id, found)
    if state_id == ref.state_id:
        return
    if wanted is None:
        raise StateMismatch(f"the snapshot gives state {state_id}, not {ref.state_id}")
    path = min(p for p in wanted.keys() | found.keys() if wanted.get(p) != found.get(p))
    raise StateMismatch(f"{path}: {found.get(path)} where state {ref.state_id[:12]} has {wanted.get(path)}")


@functools.lru_cache(maxsize=64)
def _base_of(folder: Path, base_id: str) -> tuple[Mapping[str, Entry], int]:
    return base_manifest(folder), disk_use(folder, 1 << 62)
