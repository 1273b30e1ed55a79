"""Stand-ins for what an environment is handed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from refork.envs.forkable import Edge, InfraFailure, StateRef
from refork.envs.swe.sandbox.base import Backend, Finding, Sandbox, SandboxSpec


@dataclass
class MemoryCache:
    """An execution cache in a dict that counts."""

    edges: dict[tuple[str, str, str], Edge] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def lookup(self, task: str, state_id: str, action: str) -> Edge | None:
        found = self.edges.get((task, state_id, action))
        self.counts["hit" if found else "miss"] += 1
        return found

    def record(self, task: str, state_id: str, action: str, edge: Edge) -> None:
        self.counts["record"] += 1
        self.edges[task, state_id, action] = edge


class BrokenBackend(Backend):
    """Opens nothing: for what must not run, and for how it fails when it must."""

    name = "broken"

    def open(self, spec: SandboxSpec, ref: StateRef | None = None) -> Sandbox:
        raise InfraFailure("no sandbox here")

    def close(self) -> None:
        """Nothing is held."""

    @classmethod
    def probe(cls) -> list[Finding]:
        return []
