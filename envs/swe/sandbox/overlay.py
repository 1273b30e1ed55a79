"""The overlay backend: a state is a chain of frozen layers on a base, a snapshot is one rename, a fork is a name.

Nothing stays mounted between commands: each command's child mounts the overlay in its own mount namespace.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.home import home
from refork.envs.swe.sandbox.base import (
    DEFAULT_ENVIRONMENT,
    WORKSPACE,
    Backend,
    CommandResult,
    Entry,
    Finding,
    Kill,
    Limits,
    Sandbox,
    SandboxSpec,
    digest_state,
)
from refork.envs.swe.sandbox.capture import Captured, follow
from refork.envs.swe.sandbox.cgroup import make_group, sweep_groups
from refork.envs.swe.sandbox.layers import BUDGET_BYTES, LayerStore
from refork.envs.swe.sandbox.overlay_files import Files, Writer
from refork.envs.swe.sandbox.probe import probe, unsupported
from refork.envs.swe.sandbox.scan import Table, merge, scan_layer
from refork.envs.swe.sandbox.spawner import Spawner, System, sandbox_owner
from refork.envs.swe.sandbox.trees import disk_use
from refork.envs.swe.sandbox.warm import module_of, same_start

MAX_DEPTH = 40
"""Layers of a chain before it is made one: looking up a path that is not there costs a look into each of them."""
_RESERVE_BYTES = 16 << 20
"""With less than this free, nothing a command reports is believed."""


class OverlayBackend(Backend):
    """Opens overlay sandboxes under `store` (default `<home>/layers`), all driven by one thread of one process."""

    name = "overlay"

    def __init__(self, store: Path | None = None, *, budget_bytes: int = BUDGET_BYTES) -> None:
        self._open: set[OverlaySandbox] = set()
        self.store = LayerStore(store or home() / "layers", sandbox_owner(), self._layers_in_use, budget_bytes)
        sweep_groups()
        self._process = os.getpid()
        self._started = 0
        self._spawners: dict[System, Spawner] = {}

    def _layers_in_use(self) -> set[str]:
        return {name for sandbox in self._open for name in sandbox.layers}

    def open(self, spec: SandboxSpec, ref: StateRef | None = None) -> OverlaySandbox:
        self.check_process()
        sandbox = OverlaySandbox(self, spec)
        if ref is not None:
            sandbox.restore(ref)
        self.adopt(sandbox)
        return sandbox

    def adopt(self, sandbox: OverlaySandbox) -> None:
        """Count a sandbox as open, so that `close` closes it."""
        self._open.add(sandbox)

    def retain(self, ref: StateRef) -> None:
        """Let the layers of `ref` outlive this backend, until `collect` is not told of them any more."""
        self.store.keep(ref.payload["layers"])

    def spawner(self, spec: SandboxSpec) -> Spawner:
        """The spawner for sandboxes of this kind, started when first needed and again when it has died."""
        self.check_process()
        environment = {**DEFAULT_ENVIRONMENT, **spec.environment}
        system = System(self.store.root, spec.python_env, spec.preload, tuple(sorted(environment.items())))
        found = self._spawners.get(system)
        if found is not None and not found.alive():
            found.close()
            found = None
        if found is None:
            self._started += 1
            found = Spawner(system, self.store.root / "root", make_group(self._started))
            self._spawners[system] = found
        return found

    def same_process(self) -> bool:
        return os.getpid() == self._process

    def check_process(self) -> None:
        if not self.same_process():
            raise InfraFailure("an overlay backend cannot be used across a fork: make one in each process")

    def forget(self, sandbox: OverlaySandbox) -> None:
        self._open.discard(sandbox)

    def close(self) -> None:
        if not self.same_process():
            return
        for sandbox in list(self._open):
            sandbox.close()
        for spawner in self._spawners.values():
            spawner.close()
        self._spawners.clear()
        self.store.close()

    @classmethod
    def probe(cls) -> list[Finding]:
        return probe()


class OverlaySandbox(Sandbox):
    """A chain of frozen layers (newest first) and, once something is written, a private upper one."""

    def __init__(self, backend: OverlayBackend, spec: SandboxSpec) -> None:
        self.spec = spec
        self._backend = backend
        self._store = backend.store
        self._base_name, self._base = self._store.base(spec)
        self._chain: tuple[str, ...] = ()
        self._below: Mapping[str, Entry] = {}
        self._upper: Path | None = None
        self._table: Table = {}
        self._changes: Mapping[str, Entry] = {}
        self._dirty = False
        self._id: str | None = None
        self._closed = False

    @property
    def layers(self) -> tuple[str, ...]:
        """Frozen layers this sandbox stands on, newest first."""
        return self._chain

    # ---- running

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        warm: bool = False,
    ) -> CommandResult:
        self._usable()
        limits = limits or self.spec.limits
        started = time.monotonic()
        spawner = self._backend.spawner(self.spec)
        request = self._request(list(argv), cwd, environment or {}, limits)
        module = module_of(request["argv"]) if warm else None
        if module and same_start(request["environment"], dict(spawner.system.environment)) and spawner.can_warm():
            request["module"] = module
        upper, work = self._writable(), self._store.new_folder()
        request["work"] = str(work.relative_to(self._store.root))
        kills = self._bound_memory(spawner, request, limits)
        running = spawner.spawn(request, warm=bool(request["module"]))
        self._dirty, self._id = True, None
        try:
            budget = limits.disk_mb << 20
            captured = follow(running, limits, started, lambda: disk_use(upper, budget) > budget)
        finally:
            running.end()
            self._store.drop(work)
        out_of_memory = spawner.group is not None and spawner.group.kills() > kills
        return self._result(captured, limits, out_of_memory)

    def _bound_memory(self, spawner: Spawner, request: dict[str, Any], limits: Limits) -> int:
        """Bound it for all processes together, else, without a group, each one's address space. Kills so far."""
        if spawner.group is None:
            request["limits"]["address_space_mb"] = limits.memory_mb
            return 0
        spawner.group.limit(limits.memory_mb << 20)
        return spawner.group.kills()

    def _request(self, argv: list[str], cwd: str, environment: Mapping[str, str], limits: Limits) -> dict[str, Any]:
        if not argv or any("\0" in text for text in (*argv, cwd, *environment, *environment.values())):
            raise ValueError(f"a command needs a name and no NUL in it: {argv!r} in {cwd!r}")
        upper = self._writable()
        return {
            "lower": ":".join((*self._chain, self._base_name)),
            "upper": str(upper.relative_to(self._store.root)),
            "argv": argv,
            "cwd": cwd,
            "environment": {**DEFAULT_ENVIRONMENT, **self.spec.environment, **environment},
            "module": None,
            "limits": {
                "cpu_s": limits.cpu_s,
                "file_mb": limits.file_mb,
                "processes": limits.processes,
                "address_space_mb": None,
            },
        }

    def _writable(self) -> Path:
        if self._upper is None:
            self._upper = self._store.new_folder()
        return self._upper

    def _result(self, captured: Captured, limits: Limits, out_of_memory: bool) -> CommandResult:
        upper = self._writable()
        free = os.statvfs(self._store.root)
        if free.f_bavail * free.f_frsize < _RESERVE_BYTES:
            raise InfraFailure(f"the disk under {self._store.root} is full: free some or set REFORK_HOME elsewhere")
        killed = captured.killed_by
        budget = limits.disk_mb << 20
        if killed == "disk" or disk_use(upper, budget) > budget:
            killed = "disk"
            self._reset()
        code: int | None = None
        if killed is None:
            code, killed = _judge(captured, limits, out_of_memory)
        text, omitted = captured.output.text()
        return CommandResult(code, text, omitted, captured.wall_s, killed)

    def _reset(self) -> None:
        """Back to the base: the only state that does not depend on how far a kill came too late."""
        self._discard_upper()
        self._chain, self._below, self._changes = (), {}, {}
        self._dirty, self._id = False, None

    # ---- state

    @property
    def changes(self) -> Mapping[str, Entry]:
        self._usable()
        if self._dirty:
            assert self._upper is not None
            self._table = scan_layer(self._upper, self._table, self._store.private / "cut")
            self._changes = merge(self._base, self._below, self._table)
            self._dirty = False
        return self._changes

    @property
    def state_id(self) -> str:
        changes = self.changes
        if self._id is None:
            self._id = digest_state(self.spec.base_id, changes)
        return self._id

    def snapshot(self) -> StateRef:
        self._freeze()
        size = sum(row.size for row in self._store.table(self._chain[0]).values()) if self._chain else 0
        return StateRef(self.state_id, {"layers": list(self._chain), "bytes": size})

    def _freeze(self) -> None:
        changes = self.changes
        if self._upper is None or changes == self._below:
            return
        name = self._store.freeze(self._upper, self._table)
        self._upper, self._table = None, {}
        self._chain = (name, *self._chain)
        self._below = self._changes = changes
        if len(self._chain) > MAX_DEPTH:
            self._chain = (self._store.squash(self._base, self._chain, changes),)

    def restore(self, ref: StateRef) -> None:
        self._usable()
        chain = tuple(ref.payload["layers"])
        changes: Mapping[str, Entry] = {}
        for name in reversed(chain):
            changes = merge(self._base, changes, self._store.verify(name))
        found = digest_state(self.spec.base_id, changes)
        if found != ref.state_id:
            raise StateMismatch(f"layers {', '.join(chain) or '(none)'} give state {found}, not {ref.state_id}")
        self._discard_upper()
        self._chain, self._below, self._changes = chain, changes, changes
        self._dirty, self._id = False, found

    def fork(self) -> OverlaySandbox:
        self._freeze()
        other = OverlaySandbox(self._backend, self.spec)
        other._chain, other._below, other._changes, other._id = self._chain, self._below, self._changes, self._id
        self._backend.adopt(other)
        return other

    # ---- files

    def put(self, files: Mapping[str, bytes | None]) -> None:
        for path, content in files.items():
            view = self._files()
            writer = Writer(view, self._writable(), self._store.give, self._held_below)
            self._dirty, self._id = True, None
            if content is None:
                writer.delete(path)
            else:
                writer.write(path, content)

    def get(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        return self._files().read(path, max_bytes)

    def _files(self) -> Files:
        changes = self.changes
        layers = [(self._store.root / name, self._store.table(name)) for name in self._chain]
        if self._upper is not None:
            layers.insert(0, (self._upper, self._table))
        return Files(self._base, changes, layers, self._store.root / self._base_name)

    def _held_below(self, path: str) -> bool:
        return path in self._base.entries or any(path in self._store.table(name) for name in self._chain)

    # ---- end

    def _discard_upper(self) -> None:
        if self._upper is not None:
            self._store.drop(self._upper)
        self._upper, self._table = None, {}

    def _usable(self) -> None:
        if self._closed:
            raise ValueError("this sandbox is closed")
        self._backend.check_process()

    def close(self) -> None:
        if not self._closed and self._backend.same_process():
            self._discard_upper()
            self._backend.forget(self)
        self._closed = True


def _judge(captured: Captured, limits: Limits, out_of_memory: bool) -> tuple[int | None, Kill | None]:
    """Exit code and kill reason of a command that no watcher of ours killed. Raises InfraFailure without a report."""
    report = captured.report
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
