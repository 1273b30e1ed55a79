"""The store of overlay layers on this host: bases, frozen layers, private folders.

```
b-DIGEST/        a base, copied once: work, tmp, m.json; shared by everyone
p-ID/            private folder of one store object: owner (its label), upper layers, uses of bases
ID.N/            a frozen layer: work, tmp, m.json; removed with its owner, unless it holds a file `kept`
c-CONTENT/       a frozen layer from another host; removed with the last owner that uses it, unless it is kept
root/            empty; where a spawner builds its system, in its own mount namespace
```
Names are short because they all go into one page of mount options.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from refork.envs.swe.sandbox.base import Entry, SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.janitor import Janitor
from refork.envs.swe.sandbox.layer_archive import layer_id
from refork.envs.swe.sandbox.layer_index import LayerIndex
from refork.envs.swe.sandbox.machine import machine_failures
from refork.envs.swe.sandbox.manifest import copy_base, digest_manifest
from refork.envs.swe.sandbox.owned import KEPT, SHARED, claim, release, remove_owned, sweep
from refork.envs.swe.sandbox.scan import Base, Table, scan_layer
from refork.envs.swe.sandbox.squash import flatten
from refork.envs.swe.sandbox.tables import FORMAT, gone, load_table, save_table, verify_table
from refork.envs.swe.sandbox.trees import remove_tree

__all__ = ["LayerStore", "sweep"]

BUDGET_BYTES = 8 << 30


class LayerStore:
    """One process's door to the store.

    `uid` is the user sandboxes run as, when that is not this process's own. Beyond `budget_bytes` of its own frozen
    layers those used longest ago make room, except those that `in_use` names.
    """

    def __init__(
        self,
        root: Path,
        uid: int | None,
        in_use: Callable[[], Collection[str]] = tuple,
        budget_bytes: int = BUDGET_BYTES,
    ) -> None:
        self.root = root
        self.uid = uid
        self._in_use = in_use
        self._budget = budget_bytes
        with machine_failures(root):
            self._make_root()
            self.id = claim(root)
        self.private = root / f"p-{self.id}"
        self.give(self.private)
        self._tables: dict[str, Table] = {}
        self._bases: dict[str, Base] = {}
        self._ids: dict[str, str] = {}
        self.index = LayerIndex(root)
        self._squashed: dict[tuple[str, ...], str] = {}
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._bytes = 0
        self._serial = itertools.count()
        self._janitor = Janitor(self._make_folder)

    def _make_root(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = os.geteuid() if self.uid is None else self.uid
        if os.geteuid() == 0 and not {path.name for path in self.root.iterdir()} - {"lock"}:  # a sweep makes that one
            os.chown(self.root, wanted, wanted)
        found = self.root.stat().st_uid
        if found != wanted:
            raise UnsupportedHost(
                f"{self.root} belongs to user id {found}, sandboxes here run as {wanted}: set REFORK_HOME to a folder "
                "of its own"
            )
        self.root.chmod(0o700)
        (self.root / "root").mkdir(exist_ok=True)

    def give(self, path: Path) -> None:
        """Make the sandboxes' user the owner of `path`."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    def free_bytes(self) -> int:
        """What the disk under the store has left."""
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def base(self, spec: SandboxSpec) -> tuple[str, Base]:
        """Layer name and manifest of a base, copied into the store when it is not there yet.

        Raises ValueError when `spec.base_id` is not the digest of `spec.base`, StateMismatch for a damaged copy.
        """
        name = f"b-{FORMAT}-{spec.base_id[:16]}"
        if name not in self._bases:
            (self.private / name).touch()
            if not (self.root / name).is_dir():
                self._copy_base(spec, name)
            table = verify_table(self.root / name, load_table(self.root / name))
            self._bases[name] = Base({path: row.entry for path, row in table.items()})
        return name, self._bases[name]

    def _copy_base(self, spec: SandboxSpec, name: str) -> None:
        staging = self.new_folder()
        try:
            self._stage_base(spec, staging, name)
        except OSError:
            self.drop(staging)  # half a copy would keep a full disk full
            raise

    def _stage_base(self, spec: SandboxSpec, staging: Path, name: str) -> None:
        copy_base(spec.base, staging / "work")
        (staging / "tmp").mkdir()
        (staging / "tmp").chmod(0o1777)
        for folder, folders, files in os.walk(staging):
            for entry in (*folders, *files):
                self.give(Path(folder, entry))
        table = scan_layer(staging, {}, None)
        digest = digest_manifest({path: row.entry for path, row in table.items()})
        if digest != spec.base_id:
            remove_tree(staging)
            raise ValueError(f"base_id of {spec.base} is {spec.base_id!r}, but its digest_tree is {digest!r}")
        save_table(staging, table)
        try:
            os.rename(staging, self.root / name)
        except OSError:
            if not (self.root / name).is_dir():
                raise
            self.drop(staging)  # another process was faster with the same content

    def new_folder(self) -> Path:
        """A new private folder with a number for a name, empty, owned by the sandboxes' user."""
        return self._janitor.take()

    def _make_folder(self) -> Path:
        path = self.private / str(next(self._serial))
        path.mkdir()
        self.give(path)
        return path

    def drop(self, folder: Path) -> None:
        """Have a private folder removed that nothing uses any more."""
        self._janitor.remove(folder)

    def freeze(self, layer: Path, table: Table) -> str:
        """Move a layer that nothing writes to any more into the store under a new name: O(1) but for its table."""
        save_table(layer, table)
        name = f"{self.id}.{next(self._serial)}"
        os.rename(layer, self.root / name)
        self.count(name, table)
        return name

    def count(self, name: str, table: Table) -> None:
        """Have a layer among those that this store answers for; older ones may have to make room."""
        self._bytes -= self._sizes.pop(name, 0)
        self._tables[name] = table
        self._sizes[name] = sum(row.size for row in table.values())
        self._bytes += self._sizes[name]
        if self._bytes > self._budget:
            self._make_room(name)

    def _make_room(self, newest: str) -> None:
        pinned = {newest, *self._in_use()}
        for name in [n for n in self._sizes if n not in pinned and not (self.root / n / KEPT).exists()]:
            if self._bytes <= self._budget:
                break
            self._bytes -= self._sizes.pop(name)
            del self._tables[name]
            self._ids.pop(name, None)
            if name.startswith(SHARED):
                release(self.root, self.private, name)
            else:
                aside = self.private / f"old-{name}"  # in one step, so that nobody finds half of it
                os.rename(self.root / name, aside)
                self.drop(aside)
        self._squashed = {chain: name for chain, name in self._squashed.items() if name in self._sizes}

    def squash(self, base: Base, chain: tuple[str, ...], changes: Mapping[str, Entry]) -> str:
        """One layer that shows on the base what the whole chain shows; made once per chain and process."""
        found = self._squashed.get(chain)
        if found is None:
            layers = [(self.root / name, self.table(name)) for name in chain]
            folder = self.new_folder()
            flatten(folder, base, layers, changes, self.give)
            found = self._squashed[chain] = self.freeze(folder, scan_layer(folder, {}, None))
        return found

    def table(self, name: str) -> Table:
        """What a frozen layer held when it was frozen. Raises InfraFailure when it is gone."""
        found = self._tables.get(name)
        if found is None:
            found = self._tables[name] = load_table(self.root / name)
        return found

    def verify(self, name: str) -> Table:
        """The table of a layer that still holds what it held. Raises StateMismatch, InfraFailure."""
        if name in self._sizes:
            self._sizes.move_to_end(name)
        found = self._tables[name] = verify_table(self.root / name, self.table(name))
        return found

    def content_id(self, name: str) -> str:
        """What a layer is called on every host. Raises InfraFailure when it is gone."""
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = layer_id(self.table(name))
            self.index.note(name, found)
        return found

    def keep(self, names: Iterable[str]) -> None:
        """Let layers outlive this process, until `collect` is not told of them any more."""
        for name in names:
            if not (self.root / name).is_dir():
                raise gone(self.root / name)
            (self.root / name / KEPT).touch()

    def close(self) -> None:
        """Remove what is private and every layer of this store that nothing kept and, if shared, nobody else uses."""
        self._janitor.close()
        for layer in remove_owned(self.root, self.id):
            release(self.root, self.private, layer)
