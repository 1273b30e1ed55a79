"""The state of a repair episode: the edits made, what test runs have shown, the steps left. Pure text, no sandbox."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from refork.envs.swe.module_text import ModuleText
from refork.envs.swe.sandbox.base import WORKSPACE, Entry, digest_state
from refork.envs.swe.sandbox.manifest import normal_mode
from refork.envs.swe.source_edit import Edit, decode

Ended = Literal["", "submitted", "out of steps"]


@dataclass(frozen=True)
class Applied:
    """One edit made. It is placed by the text after the first `base` edits, for which its menu was made."""

    edit: Edit
    base: int


Stack = tuple[Applied, ...]


@dataclass(frozen=True)
class Known:
    """What test runs in one workspace have shown."""

    failing: tuple[int, ...] | None = None
    """Those of the tests failing at the start that fail there, by index; None: not run."""
    broken: int | None = None
    """How many neighbouring tests, passing at the start, fail there; None: not run."""


@dataclass(frozen=True)
class RepairState:
    """All that the future of an episode depends on."""

    stack: Stack
    known: Mapping[str, Known]
    """By workspace id."""
    steps_left: int
    ended: Ended = ""

    def learned(self, workspace_id: str, **news: Any) -> RepairState:
        known = replace(self.known.get(workspace_id, Known()), **news)
        return replace(self, known={**self.known, workspace_id: known})

    def to_json(self) -> dict[str, Any]:
        edits = [[*_row(a.edit), a.base] for a in self.stack]
        known = {key: [k.failing, k.broken] for key, k in self.known.items()}
        return {"stack": edits, "known": known, "steps_left": self.steps_left, "ended": self.ended}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RepairState:
        stack = tuple(Applied(Edit(*row[:-1]), row[-1]) for row in data["stack"])
        known = {
            key: Known(None if failing is None else tuple(failing), broken)
            for key, (failing, broken) in data["known"].items()
        }
        return cls(stack, known, data["steps_left"], data["ended"])


def _row(edit: Edit) -> list[Any]:
    return [edit.path, edit.start_line, edit.start_col, edit.end_line, edit.end_col, edit.new_text]


@dataclass(frozen=True, eq=False)
class Workspace:
    """The package's modules after some edits, and the id a sandbox has when they are put into it."""

    modules: Modules
    id: str

    @property
    def files(self) -> dict[str, bytes]:
        """What differs from the base, by sandbox path."""
        return {f"{WORKSPACE}/{path}": m.text.encode() for path, m in sorted(self.modules.changed.items())}


@dataclass(frozen=True, eq=False)
class Modules(Mapping[str, ModuleText]):
    """Modules by workspace path, read and parsed when first asked for; what is no UTF-8 Python is left out."""

    folder: Path
    paths: tuple[str, ...]
    changed: Mapping[str, ModuleText] = field(default_factory=dict)

    def __getitem__(self, path: str) -> ModuleText:
        module = self.changed.get(path) or (read_module(self.folder, path) if path in self.paths else None)
        if module is None:
            raise KeyError(path)
        return module

    def __iter__(self) -> Iterator[str]:
        return (path for path in self.paths if read_module(self.folder, path) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def edited(self, edits: tuple[Edit, ...]) -> Modules:
        changed = dict(self.changed)
        for path in sorted({edit.path for edit in edits}):
            changed[path] = self[path].edited(*(edit for edit in edits if edit.path == path))
        return Modules(self.folder, self.paths, changed)


@lru_cache(maxsize=1024)
def read_module(folder: Path, path: str) -> ModuleText | None:
    """A module of a base (bases are never written); None when it is no UTF-8 Python of this interpreter."""
    try:
        return ModuleText.of(path, decode((folder / path).read_bytes()))
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return None


class Workspaces:
    """The workspaces of one task by the edits that lead there."""

    def __init__(self, folder: Path, base_id: str, source_files: tuple[str, ...]) -> None:
        self.base_id = base_id
        self.start = Workspace(Modules(folder, source_files), digest_state(base_id, {}))
        self.at = lru_cache(maxsize=512)(self._at)
        self._mode = lru_cache(maxsize=512)(lambda path: normal_mode((folder / path).stat().st_mode))

    def _at(self, stack: Stack) -> Workspace:
        """Raises ValueError when an edit does not fit, KeyError when it is of no source file."""
        if not stack:
            return self.start
        base = stack[-1].base
        modules = self.at(stack[:base]).modules.edited(tuple(a.edit for a in stack[base:]))
        return Workspace(modules, self.id_of(modules))

    def id_of(self, modules: Modules) -> str:
        """The id of the base with those modules in it."""
        return self._digest({path: module.digest for path, module in modules.changed.items()})

    def children(self, stack: Stack, edits: Iterable[Edit]) -> list[str]:
        """Ids of the workspaces that one more edit leads to, each placed by the text that `stack` leads to."""
        modules = self.at(stack).modules
        digests = {path: module.digest for path, module in modules.changed.items()}
        return [self._digest(digests | {edit.path: modules[edit.path].digest_after(edit)}) for edit in edits]

    def _digest(self, digests: Mapping[str, str]) -> str:
        changed = {path: digest for path, digest in digests.items() if digest != self.start.modules[path].digest}
        return digest_state(
            self.base_id, {f"{WORKSPACE}/{p}": Entry("file", self._mode(p), digest) for p, digest in changed.items()}
        )

    def state_id(self, task: str, state: RepairState) -> str:
        """Content digest of a state: two episodes that know and may do the same meet in it."""
        stack = [self.at(state.stack[: i + 1]).id for i in range(len(state.stack))]
        known = sorted((key, k.failing, k.broken) for key, k in state.known.items())
        row = [task, stack, known, state.steps_left, state.ended]
        return hashlib.sha256(json.dumps(row).encode()).hexdigest()
