"""Going back where nothing can be snapshot: a state is the actions that led there, done again and compared one by one.

Works over any backend, of which it asks a fresh sandbox and nothing else. What an action showed is compared without
durations ("1.23s", "40 ms"), which no replay repeats.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from refork.envs.forkable import StateMismatch, StateRef
from refork.envs.swe.sandbox.base import (
    WORKSPACE,
    Backend,
    CommandResult,
    Entry,
    Finding,
    Limits,
    Sandbox,
    SandboxSpec,
)

_DURATION = re.compile(r"\b\d+(\.\d+)?\s?(s|ms|us|ns|sec|seconds)\b")


@dataclass(frozen=True)
class Action:
    """One `run` or `put`, as JSON values, and the digest of what it showed and where it led."""

    kind: str
    arguments: Mapping[str, Any]
    digest: str

    def __str__(self) -> str:
        what = self.arguments.get("argv") or sorted(self.arguments.get("files", {}))
        return f"{self.kind} {str(what)[:100]}"


class ReplaySandbox(Sandbox):
    """A sandbox of `inner` that writes down what was done in it."""

    def __init__(self, inner: Backend, spec: SandboxSpec, actions: Sequence[Action] = ()) -> None:
        self.inner, self.spec = inner, spec
        self._actions: list[Action] = []
        self._sandbox = inner.open(spec)
        try:
            self._replay(actions)
        except BaseException:
            self._sandbox.close()
            raise

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        warm: bool = False,
    ) -> CommandResult:
        arguments = {
            "argv": list(argv),
            "cwd": cwd,
            "environment": dict(environment or {}),
            "limits": asdict(limits) if limits else None,
            "warm": warm,
        }
        result = self._run(arguments)
        self._actions.append(Action("run", arguments, self._digest(result)))
        return result

    def put(self, files: Mapping[str, bytes | None]) -> None:
        encoded = {p: None if data is None else base64.b64encode(data).decode() for p, data in files.items()}
        self._put({"files": encoded})
        self._actions.append(Action("put", {"files": encoded}, self._digest(None)))

    def get(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        return self._sandbox.get(path, max_bytes)

    @property
    def changes(self) -> Mapping[str, Entry]:
        return self._sandbox.changes

    def snapshot(self) -> StateRef:
        """Free: the actions so far."""
        return StateRef(self.state_id, {"actions": [[a.kind, dict(a.arguments), a.digest] for a in self._actions]})

    def restore(self, ref: StateRef) -> None:
        """O(actions). Raises StateMismatch at the first action that does not do what it did; then nothing changes."""
        actions = [Action(kind, arguments, digest) for kind, arguments, digest in ref.payload["actions"]]
        again = ReplaySandbox(self.inner, self.spec, actions)
        if (found := again.state_id) != ref.state_id:
            again.close()
            raise StateMismatch(f"replayed {len(actions)} actions: expected state {ref.state_id}, got {found}")
        self._sandbox.close()
        self._sandbox, self._actions = again._sandbox, again._actions

    def fork(self) -> Sandbox:
        return ReplaySandbox(self.inner, self.spec, self._actions)

    def close(self) -> None:
        self._sandbox.close()

    def _replay(self, actions: Sequence[Action]) -> None:
        for number, action in enumerate(actions):
            result = self._run(action.arguments) if action.kind == "run" else None
            if action.kind == "put":
                self._put(action.arguments)
            if (found := self._digest(result)) != action.digest:
                raise StateMismatch(
                    f"replayed action {number} of {len(actions)} ({action}) differs: "
                    f"expected observation {action.digest}, got {found}"
                )
            self._actions.append(action)

    def _run(self, arguments: Mapping[str, Any]) -> CommandResult:
        return self._sandbox.run(
            arguments["argv"],
            cwd=arguments["cwd"],
            environment=arguments["environment"],
            limits=Limits(**arguments["limits"]) if arguments["limits"] else None,
            warm=arguments["warm"],
        )

    def _put(self, arguments: Mapping[str, Any]) -> None:
        files = arguments["files"]
        self._sandbox.put({path: None if text is None else base64.b64decode(text) for path, text in files.items()})

    def _digest(self, result: CommandResult | None) -> str:
        seen: list[Any] = [self._sandbox.state_id]
        if result is not None:
            output = _DURATION.sub("#", result.output)
            seen += [result.exit_code, output, result.omitted_bytes, result.killed_by]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


class ReplayBackend(Backend):
    """Sandboxes of `inner` that go back by replay. `inner` is closed with it."""

    name = "replay"

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    def open(self, spec: SandboxSpec, ref: StateRef | None = None) -> Sandbox:
        sandbox = ReplaySandbox(self.inner, spec)
        if ref is not None:
            try:
                sandbox.restore(ref)
            except BaseException:
                sandbox.close()
                raise
        return sandbox

    def close(self) -> None:
        self.inner.close()

    @classmethod
    def probe(cls) -> list[Finding]:
        return [Finding("replay", True, "goes back by doing the actions again, over the overlay or docker backend")]
