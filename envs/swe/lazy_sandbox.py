"""A sandbox that is brought to a state only when something must run there."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.swe.sandbox.base import Backend, CommandResult, Limits, Sandbox, SandboxSpec, digest_state

REFS = 4096


@dataclass(frozen=True)
class Step:
    """A command, and the state id that it led to."""

    command: str
    state_id: str


Path = tuple[Step, ...]


class LazySandbox:
    """One sandbox and the states it can go back to. States are named by the commands that led there from the base."""

    def __init__(self, backend: Backend, spec: SandboxSpec, limits: Limits) -> None:
        self.backend, self.spec, self.limits = backend, spec, limits
        self.base_id = digest_state(spec.base_id, {})
        self._sandbox: Sandbox | None = None
        self._standing: str | None = None
        self._refs: OrderedDict[str, StateRef] = OrderedDict()

    def at(self, path: Path) -> Sandbox:
        """The sandbox in the state that `path` leads to. Raises InfraFailure, StateMismatch."""
        ids = [self.base_id, *(step.state_id for step in path)]
        sandbox = self._opened()
        if self._standing != ids[-1]:
            start = self._go_back(sandbox, ids)
            for number, step in enumerate(path[start:], start):
                self._replay(sandbox, number, step)
        return sandbox

    def run(self, command: str) -> CommandResult:
        """Run a command where the sandbox stands; where that leads is told with `moved_to`."""
        self._standing = None
        return self._opened().run(["sh", "-c", command], limits=self.limits)

    def moved_to(self, path: Path) -> None:
        """The sandbox stands where `path` leads."""
        self._standing = path[-1].state_id

    def keep(self, path: Path) -> StateRef | None:
        """A snapshot of that state if the sandbox stands in it or it was kept before; never runs anything."""
        state_id = path[-1].state_id if path else self.base_id
        if state_id not in self._refs and self._sandbox is not None and self._standing == state_id:
            self.know(self._sandbox.snapshot())
        return self._refs.get(state_id)

    def know(self, ref: StateRef) -> None:
        """Remember how a state is restored."""
        self._refs[ref.state_id] = ref
        self._refs.move_to_end(ref.state_id)
        while len(self._refs) > REFS:
            oldest = next(key for key in self._refs if key != self.base_id)
            del self._refs[oldest]

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
        self._sandbox, self._standing = None, None
        self._refs.clear()

    def _opened(self) -> Sandbox:
        if self._sandbox is None:
            self._sandbox = self.backend.open(self.spec)
            self.know(self._sandbox.snapshot())
            self._standing = self.base_id
        return self._sandbox

    def _go_back(self, sandbox: Sandbox, ids: list[str]) -> int:
        """Go to the last place on the way where the sandbox stands or that it can restore; which that is."""
        for n in range(len(ids) - 1, -1, -1):
            if self._standing == ids[n]:
                return n
            if ids[n] in self._refs and self._restore(sandbox, ids[n]):
                return n
        raise InfraFailure("the sandbox cannot go back to its base")

    def _restore(self, sandbox: Sandbox, state_id: str) -> bool:
        self._standing = None
        try:
            sandbox.restore(self._refs[state_id])
        except InfraFailure:  # its layers may be gone, as those of another process or an older run are
            del self._refs[state_id]
            return False
        self._standing = state_id
        return True

    def _replay(self, sandbox: Sandbox, number: int, step: Step) -> None:
        self._standing = None
        sandbox.run(["sh", "-c", step.command], limits=self.limits)
        if (found := sandbox.state_id) != step.state_id:
            raise StateMismatch(
                f"replayed command {number} ({step.command[:80]!r}) led to state {found}, expected {step.state_id}"
            )
        self._standing = step.state_id
