"""The overlay backend: what its sandboxes share, which is the layer store and a spawner for each kind of system."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateRef
from refork.envs.home import home
from refork.envs.swe.sandbox.base import DEFAULT_ENVIRONMENT, Backend, Finding, SandboxSpec
from refork.envs.swe.sandbox.cgroup import make_group, sweep_groups
from refork.envs.swe.sandbox.layer_depot import LayerDepot
from refork.envs.swe.sandbox.layer_sharing import locate, publish
from refork.envs.swe.sandbox.layers import BUDGET_BYTES, LayerStore
from refork.envs.swe.sandbox.overlay_sandbox import OverlaySandbox
from refork.envs.swe.sandbox.probe import probe
from refork.envs.swe.sandbox.spawner import Spawner, System, sandbox_owner


class OverlayBackend(Backend):
    """Opens overlay sandboxes under `store` (default `<home>/layers`), all driven by one thread of one process.

    Layers that a reference names and this host lacks are fetched from `depots`, the first that gives them.
    """

    name = "overlay"

    def __init__(
        self, store: Path | None = None, *, budget_bytes: int = BUDGET_BYTES, depots: Sequence[LayerDepot] = ()
    ) -> None:
        self.depots = tuple(depots)
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
        sandbox = OverlaySandbox(self, self.store, spec)
        if ref is not None:
            sandbox.restore(ref)
        self.adopt(sandbox)
        return sandbox

    def adopt(self, sandbox: OverlaySandbox) -> None:
        """Count a sandbox as open, so that `close` closes it."""
        self._open.add(sandbox)

    def locate(self, ref: StateRef) -> tuple[str, ...]:
        """Names of the layers of `ref` in this store; what is missing is fetched. Raises InfraFailure."""
        return locate(self.store, ref, self.depots)

    def retain(self, ref: StateRef) -> None:
        """Let the layers of `ref` outlive this backend, until `collect` is not told of them any more.

        Depots that lack them get them.
        """
        self.store.keep(self.locate(ref))
        for depot in self.depots:
            publish(self.store, ref, depot)

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
