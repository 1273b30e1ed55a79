"""One class for every sandbox: a workspace whose file system is the whole state, run command by command.

A command is stateless: new process group, stdin closed, cwd and environment given explicitly. What it leaves
on disk below `WORKSPACE` and `/tmp` is the state; everything else is read-only. Design section 5.

All backends agree on what a state id does not cover: owners, times, extended attributes, `VOLATILE` folders and hard
links. The last two are therefore removed after each command: the folders go, the names of a linked file become files
of their own. A command that cannot be started ends with what a shell would give: 127 not found, 126 not to be run.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from refork.envs.forkable import StateRef

WORKSPACE = "/testbed"
TMP = "/tmp"
PYTHON_ENV = "/opt/env"
SANDBOX_UID = 1000

VOLATILE = ("__pycache__", ".pytest_cache", ".hypothesis", ".mypy_cache", ".ruff_cache")
"""Directory names that are no part of a state; the backends delete them after each command."""

DEFAULT_ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "PATH": "/opt/bin:/opt/python/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": PYTHON_ENV,
    "TZ": "UTC",
}

Kind = Literal["file", "dir", "link", "fifo", "socket", "deleted"]
Kill = Literal["wall", "cpu", "memory", "output", "disk"]
"""Which limit ended a command. After 'disk' the sandbox is back at its base: how far it got is no repeatable state."""


@dataclass(frozen=True)
class Limits:
    """Limits of one command. Every one is enforced by every backend."""

    wall_s: float = 60.0
    """Seconds of wall time; then everything the command started is killed."""
    cpu_s: int = 60
    """Seconds of CPU time per process."""
    memory_mb: int = 1024
    """MiB, of all processes together where cgroups are there, else of address space per process."""
    processes: int = 128
    """Processes and threads alive at once."""
    file_mb: int = 256
    """MiB, the largest file a command may write."""
    disk_mb: int = 1024
    """MiB the workspace and /tmp may hold beyond the base."""
    output_bytes: int = 65_536
    """Bytes of output kept: half head, half tail; the number left out is exact."""


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox starts from."""

    base: Path
    """Host folder with the content of the workspace; it is copied once and never written."""
    base_id: str
    """Content digest of `base` (`digest_tree`); part of every state id."""
    python_env: Path | None = None
    """Host folder of installed packages, seen read-only at /opt/env."""
    image: str | None = None
    """Container image holding the same base (docker backend only)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to DEFAULT_ENVIRONMENT."""
    limits: Limits = Limits()
    preload: tuple[str, ...] = ("pytest",)
    """Modules imported once in the warm interpreter that `run(..., warm=True)` forks from."""


@dataclass(frozen=True)
class CommandResult:
    """What a command did. `exit_code` is negative for a signal, as in subprocess; None when a limit killed it."""

    exit_code: int | None
    output: str
    """stdout and stderr in the order written, head and tail kept, undecodable bytes replaced."""
    omitted_bytes: int
    wall_s: float
    killed_by: Kill | None = None


@dataclass(frozen=True)
class Entry:
    """One path that differs from the base. `digest` is sha256 of a file's bytes or a link's target, '' otherwise."""

    kind: Kind
    mode: int
    digest: str


def digest_state(base_id: str, changes: Mapping[str, Entry]) -> str:
    """State id: sha256 over the base id and the sorted entries that differ from it.

    `changes` maps absolute sandbox paths ('/testbed/a.py', '/tmp/x') to entries; an entry equal to the base's own
    must not be in it, so that two ways to one content meet in one id.
    """
    rows = [[path, e.kind, e.mode, e.digest] for path, e in sorted(changes.items())]
    return hashlib.sha256(json.dumps([base_id, rows], ensure_ascii=True).encode()).hexdigest()


class Sandbox(ABC):
    """A workspace in some state. Not thread-safe: one thread drives one sandbox."""

    spec: SandboxSpec

    @abstractmethod
    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str = WORKSPACE,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        warm: bool = False,
    ) -> CommandResult:
        """Run `argv` to its end. `warm` hints, for `python -m MODULE`: the same result from a preloaded interpreter.

        Raises InfraFailure when the sandbox itself broke; a failing command is a CommandResult.
        """

    @abstractmethod
    def put(self, files: Mapping[str, bytes | None]) -> None:
        """Write files by absolute sandbox path as the sandbox's user; None deletes. Parents are made."""

    @abstractmethod
    def get(self, path: str, max_bytes: int = 1 << 20) -> bytes:
        """Read one file as the sandbox sees it. Raises FileNotFoundError; at most `max_bytes` bytes come back."""

    @property
    @abstractmethod
    def changes(self) -> Mapping[str, Entry]:
        """What differs from the base, by absolute sandbox path."""

    @property
    def state_id(self) -> str:
        return digest_state(self.spec.base_id, self.changes)

    @abstractmethod
    def snapshot(self) -> StateRef:
        """Freeze the current state, O(change); the sandbox plays on."""

    @abstractmethod
    def restore(self, ref: StateRef) -> None:
        """Become `ref`. Verifies: raises StateMismatch naming the first difference."""

    @abstractmethod
    def fork(self) -> Sandbox:
        """A new, independent sandbox in this one's current state, O(1)."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind; closing twice is allowed."""

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Finding:
    """One line of `refork doctor`."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


class Backend(ABC):
    """Opens sandboxes. One per process; holds what they share (warm interpreter, daemon connection, layer store)."""

    name: str

    @abstractmethod
    def open(self, spec: SandboxSpec, ref: StateRef | None = None) -> Sandbox:
        """A sandbox at the base of `spec`, or at `ref`. Raises InfraFailure, UnsupportedHost."""

    def retain(self, ref: StateRef) -> None:  # noqa: B027
        """Let what `ref` needs outlive this backend; to be called for every reference that is stored.

        Other processes may use a reference while the backend that took it is open, without this. Nothing to do where
        a reference needs nothing but itself.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what is shared; sandboxes still open are closed too."""

    def __deepcopy__(self, memo: object) -> Self:
        """What is shared is not copied (Gymnasium copies the arguments that an environment is made with)."""
        return self

    @classmethod
    @abstractmethod
    def probe(cls) -> list[Finding]:
        """What of this backend works here, without leaving anything behind."""


class UnsupportedHost(RuntimeError):
    """The kernel or the user's rights lack something; the message says which, and what to install or choose instead."""
