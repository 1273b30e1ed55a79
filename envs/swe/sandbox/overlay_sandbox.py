"""One overlay sandbox: a state is a chain of frozen layers on a base, a snapshot is one rename, a fork is a name.

Nothing stays mounted between commands: each command's child mounts the overlay in its own mount namespace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from refork.envs.forkable import StateMismatch, StateRef
from refork.envs.swe.sandbox.base import (
    WORKSPACE,
    CommandResult,
    Entry,
    Limits,
    Sandbox,
    SandboxSpec,
    digest_state,
)
from refork.envs.swe.sandbox.layers import LayerStore
from refork.envs.swe.sandbox.machine import machine_failures
from refork.envs.swe.sandbox.overlay_command import Command
from refork.envs.swe.sandbox.overlay_files import Files, Writer
from refork.envs.swe.sandbox.scan import Table, merge, scan_layer
from refork.envs.swe.sandbox.spawner import Spawner
from refork.envs.swe.sandbox.trees import disk_use

_P = ParamSpec("_P")
_T = TypeVar("_T")
MAX_DEPTH = 40
"""Layers of a chain before it is made one: looking up a path that is not there costs a look into each of them."""


class Host(Protocol):
    """What a sandbox needs of its backend."""

    def spawner(self, spec: SandboxSpec) -> Spawner: ...

    def locate(self, ref: StateRef) -> tuple[str, ...]: ...

    def adopt(self, sandbox: OverlaySandbox) -> None: ...

    def forget(self, sandbox: OverlaySandbox) -> None: ...

    def same_process(self) -> bool: ...

    def check_process(self) -> None: ...


def _on_disk(
    method: Callable[Concatenate[OverlaySandbox, _P], _T],
) -> Callable[Concatenate[OverlaySandbox, _P], _T]:
    """A disk that is full, or fails, is an InfraFailure of the method."""

    @wraps(method)
    def guarded(self: OverlaySandbox, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with machine_failures(self._store.root):
            return method(self, *args, **kwargs)

    return guarded


class OverlaySandbox(Sandbox):
    """A chain of frozen layers (newest first) and, once something is written, a private upper one."""

    def __init__(self, host: Host, store: LayerStore, spec: SandboxSpec) -> None:
        self.spec = spec
        self._host = host
        self._store = store
        with machine_failures(store.root):
            self._base_name, self._base = store.base(spec)
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

    @_on_disk
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
        command = Command(list(argv), cwd, {**self.spec.environment, **(environment or {})}, limits or self.spec.limits)
        spawner, upper = self._host.spawner(self.spec), self._writable()
        self._dirty, self._id = True, None
        result = command.run(spawner, self._store, (*self._chain, self._base_name), upper, warm=warm)
        if result.killed_by != "disk" and not self._holds_too_much(command.limits.disk_mb << 20):
            return result
        self._reset()
        return dataclasses.replace(result, exit_code=None, killed_by="disk")

    def _holds_too_much(self, budget: int) -> bool:
        """Whether what differs from the base is beyond `budget` bytes; exact, but added up only where it may be."""
        written = disk_use(self._writable(), budget)
        frozen = [self._store.table(name) for name in self._chain]
        if written > budget or written + sum(row.size for table in frozen for row in table.values()) <= budget:
            return written > budget
        changes = self.changes
        tables = [self._table, *frozen]
        files = (path for path, entry in changes.items() if entry.kind == "file")
        return sum(next(table[path].size for table in tables if path in table) for path in files) > budget

    def _writable(self) -> Path:
        if self._upper is None:
            self._upper = self._store.new_folder()
        return self._upper

    def _reset(self) -> None:
        """Back to the base: the only state that does not depend on how far a kill came too late."""
        self._discard_upper()
        self._chain, self._below, self._changes = (), {}, {}
        self._dirty, self._id = False, None

    # ---- state

    @property
    @_on_disk
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

    @_on_disk
    def snapshot(self) -> StateRef:
        self._freeze()
        size = sum(row.size for row in self._store.table(self._chain[0]).values()) if self._chain else 0
        ids = [self._store.content_id(name) for name in self._chain]
        return StateRef(self.state_id, {"layers": list(self._chain), "ids": ids, "bytes": size})

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

    @_on_disk
    def restore(self, ref: StateRef) -> None:
        self._usable()
        chain = self._host.locate(ref)
        changes: Mapping[str, Entry] = {}
        for name in reversed(chain):
            changes = merge(self._base, changes, self._store.verify(name))
        found = digest_state(self.spec.base_id, changes)
        if found != ref.state_id:
            raise StateMismatch(f"layers {', '.join(chain) or '(none)'} give state {found}, not {ref.state_id}")
        self._discard_upper()
        self._chain, self._below, self._changes = chain, changes, changes
        self._dirty, self._id = False, found

    @_on_disk
    def fork(self) -> OverlaySandbox:
        self._freeze()
        other = OverlaySandbox(self._host, self._store, self.spec)
        other._chain, other._below, other._changes, other._id = self._chain, self._below, self._changes, self._id
        self._host.adopt(other)
        return other

    # ---- files

    @_on_disk
    def put(self, files: Mapping[str, bytes | None]) -> None:
        writer = Writer(self._files(), self._writable(), self._store.give, self._held_below)
        self._dirty, self._id = True, None
        for path, content in files.items():
            if content is None:
                writer.delete(path)
            else:
                writer.write(path, content)

    @_on_disk
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
        self._host.check_process()

    def close(self) -> None:
        if not self._closed and self._host.same_process():
            self._discard_upper()
            self._host.forget(self)
        self._closed = True
