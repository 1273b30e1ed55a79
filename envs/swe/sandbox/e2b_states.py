"""Snapshots of the service by what they hold: one for each base, made once, and one for each state that was frozen.

```
home()/e2b/bases/KEY     id of the snapshot of a prepared base     kept/NAME    snapshots stored for later
```
A base's snapshot is named after its key, so other hosts find it in the service and no sweep takes it.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.home import home
from refork.envs.owner import owner
from refork.envs.swe.lock import locked
from refork.envs.swe.sandbox.base import Entry, SandboxSpec
from refork.envs.swe.sandbox.e2b_boot import base_key, write_archive
from refork.envs.swe.sandbox.e2b_client import Service, kept_folder, snapshot_prefix, sweep, warned
from refork.envs.swe.sandbox.e2b_machine import Machine
from refork.envs.swe.sandbox.manifest import base_manifest, difference

_log = logging.getLogger(__name__)


class States:
    """The snapshots of one backend. Its own are removed when it closes, unless they are kept."""

    def __init__(self, service: Service, template: str) -> None:
        self.service, self.template = service, template
        self.slots = home() / "e2b" / "slots"
        self._own: dict[str, tuple[str, str]] = {}
        """Name and id of the snapshot by state id."""
        self._changes: dict[str, Mapping[str, Entry]] = {}
        self._number = itertools.count()
        self._lock = threading.Lock()

    def freeze(self, machine: Machine, state_id: str, changes: Mapping[str, Entry]) -> tuple[str, str]:
        """Name and id of a snapshot of that state: one taken before, else one of `machine`."""
        with self._lock:
            known = self._own.get(state_id)
        if known is None:
            name = f"{snapshot_prefix()}{owner()}-{next(self._number)}"
            known = name, self.service.snapshot(machine.name, name)
            with self._lock:
                self._own[state_id] = known
                self._changes[state_id] = dict(changes)
        return known

    def changes(self, state_id: str) -> Mapping[str, Entry] | None:
        """Of a state frozen here."""
        return self._changes.get(state_id)

    def start(self, snapshot_id: str) -> Machine:
        """A machine that holds what the snapshot does. Raises InfraFailure."""
        return Machine(self.service, self.service.create(snapshot_id, self.slots))

    def start_base(self, spec: SandboxSpec) -> Machine:
        """A machine at the base of `spec`; the first time the base is packed, sent and frozen. Raises InfraFailure."""
        key = base_key(spec.base_id, spec.python_env, self.template)
        noted = home() / "e2b" / "bases" / key
        with locked(noted.with_name("lock")):
            name = f"refork-base-{key}"
            known = noted.read_text() if noted.exists() else self.service.snapshots(name).get(name)
            if known is None:
                return self._make_base(spec, name, noted)
            noted.write_text(known)
        try:
            return self.start(known)
        except InfraFailure:
            if known in self.service.snapshots(name).values():
                raise
            noted.unlink(missing_ok=True)  # removed in the service by somebody: make it anew
            return self.start_base(spec)

    def _make_base(self, spec: SandboxSpec, name: str, noted: Path) -> Machine:
        machine = self.start(self.template)
        try:
            with tempfile.TemporaryFile() as archive:
                write_archive(archive, spec.base, spec.python_env)
                _log.info("sending the base %s, %.1f MB", spec.base_id[:12], archive.tell() / 1e6)
                machine.prepare(archive)
            machine.ask("scan", wait_s=300.0)
            if wrong := difference(base_manifest(spec.base), machine.rows):
                raise InfraFailure(f"the service unpacked the base wrongly: {min(wrong)} is {wrong[min(wrong)]}")
            noted.write_text(self.service.snapshot(machine.name, name))
        except BaseException:
            machine.end()
            raise
        return machine

    def keep(self, name: str) -> None:
        """Let a snapshot outlive its owner."""
        kept_folder().mkdir(parents=True, exist_ok=True)
        (kept_folder() / name).touch()

    def collect(self, live: Collection[str]) -> None:
        """Of the kept snapshots, keep only those named in `live`."""
        for mark in kept_folder().glob("*"):
            if mark.name not in live:
                mark.unlink(missing_ok=True)
        sweep(self.service)

    def close(self) -> None:
        """Remove the snapshots that were taken and not kept."""
        for name, snapshot_id in self._own.values():
            if not (kept_folder() / name).exists():
                with warned(f"snapshot {snapshot_id} was not removed"):
                    self.service.delete_snapshot(snapshot_id)
        self._own.clear()


def collect_bases(service: Service) -> int:
    """Remove the bases that this host has noted, unless a sandbox of it lives; they are made again. How many."""
    folder = home() / "e2b" / "bases"
    with locked(folder / "lock"):
        noted = [path for path in folder.iterdir() if path.name != "lock"]
        if service.machines():
            return 0
        removed = [service.delete_snapshot(path.read_text()) for path in noted]
        for path in noted:
            path.unlink()
    return sum(removed)
