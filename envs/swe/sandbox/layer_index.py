"""Which layer of a store has which content, also those that other processes made."""

from __future__ import annotations

from pathlib import Path

from refork.envs.forkable import InfraFailure, StateMismatch
from refork.envs.swe.sandbox.layer_archive import layer_id
from refork.envs.swe.sandbox.owned import SHARED
from refork.envs.swe.sandbox.tables import load_table


class LayerIndex:
    """Names by content id. A layer never changes, so each is looked into once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def note(self, name: str, content: str) -> None:
        self._ids[name] = content
        self._names[content] = name

    def find(self, content: str) -> str | None:
        """The name of a layer that is there now. O(layers made since the last call)."""
        if not self._is_there(self._names.get(content)):
            self._look()
        name = self._names.get(content)
        return name if self._is_there(name) else None

    def _is_there(self, name: str | None) -> bool:
        return name is not None and (self._root / name).is_dir()

    def _look(self) -> None:
        found = {path.name for path in self._root.iterdir() if path.name.startswith(SHARED) or "." in path.name}
        for name in self._ids.keys() - found:
            content = self._ids.pop(name)
            if self._names[content] == name:
                del self._names[content]
        for name in sorted(found - self._ids.keys()):
            try:
                self.note(name, layer_id(load_table(self._root / name)))
            except (InfraFailure, StateMismatch):  # it has just gone, or is damaged: none to offer
                continue
