"""The store of overlay layers on this host: bases, frozen layers, private folders, and who owns them.

```
b-DIGEST/        a base, copied once: work, tmp, m.json; shared by everyone
p-ID/            private folder of one store object: owner (its label), uppers, uses of bases
ID.N/            a frozen layer: work, tmp, m.json; removed with its owner, unless it holds a file `kept`
root/            empty; where a spawner builds its system, in its own mount namespace
```
Names are short because they all go into one page of mount options.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateMismatch
from refork.envs.owner import alive, owner
from refork.envs.swe.sandbox.base import Entry, SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.janitor import Janitor, remove_trees
from refork.envs.swe.sandbox.manifest import base_manifest, copy_base, digest_manifest
from refork.envs.swe.sandbox.scan import Base, Row, Table, host_path, read_row, scan_layer, stamp_of
from refork.envs.swe.sandbox.squash import flatten
from refork.envs.swe.sandbox.trees import remove_tree

_MANIFEST = "m.json"
_KEPT = "kept"


class LayerStore:
    """One process's door to the store. `uid` is the user sandboxes run as, when that is not this process's own."""

    def __init__(self, root: Path, uid: int | None) -> None:
        self.root = root
        self.uid = uid
        self._make_root()
        self.id = self._claim()
        self.private = root / f"p-{self.id}"
        self._tables: dict[str, Table] = {}
        self._bases: dict[str, Base] = {}
        self._squashed: dict[tuple[str, ...], str] = {}
        self._serial = itertools.count()
        self._janitor = Janitor(self._make_folder)

    def _make_root(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        wanted = os.geteuid() if self.uid is None else self.uid
        if os.geteuid() == 0 and self.uid is not None and not any(self.root.iterdir()):
            os.chown(self.root, wanted, wanted)
        found = self.root.stat().st_uid
        if found != wanted:
            raise UnsupportedHost(
                f"{self.root} belongs to user id {found}, sandboxes here run as {wanted}: set REFORK_HOME to a folder "
                "of its own"
            )
        self.root.chmod(0o700)
        (self.root / "root").mkdir(exist_ok=True)

    def _claim(self) -> str:
        with _locked(self.root):
            _sweep_dead(self.root)
            while True:
                name = secrets.token_hex(3)
                if not (self.root / f"p-{name}").exists() and not any(self.root.glob(f"{name}.*")):
                    break
            private = self.root / f"p-{name}"
            private.mkdir()
            (private / "owner").write_text(owner())
            self.give(private)
        return name

    def give(self, path: Path) -> None:
        """Make the sandboxes' user the owner of `path`."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid, follow_symlinks=False)

    # ---- bases

    def base(self, spec: SandboxSpec) -> tuple[str, Base]:
        """Layer name and manifest of a base, copied into the store when it is not there yet.

        Raises ValueError when `spec.base_id` is not the digest of `spec.base`.
        """
        name = f"b-{spec.base_id[:16]}"
        if name not in self._bases:
            (self.private / name).touch()
            if not (self.root / name).is_dir():
                self._copy_base(spec, name)
            rows = json.loads((self.root / name / _MANIFEST).read_text())
            self._bases[name] = Base({path: Entry(*values) for path, values in rows.items()})
        return name, self._bases[name]

    def _copy_base(self, spec: SandboxSpec, name: str) -> None:
        staging = self.new_folder()
        copy_base(spec.base, staging / "work")
        (staging / "tmp").mkdir()
        (staging / "tmp").chmod(0o1777)
        manifest = base_manifest(staging / "work")
        if digest_manifest(manifest) != spec.base_id:
            remove_tree(staging)
            raise ValueError(
                f"base_id of {spec.base} is {spec.base_id[:16]}..., its digest {digest_manifest(manifest)[:16]}..."
            )
        rows = {path: [e.kind, e.mode, e.digest] for path, e in manifest.items()}
        (staging / _MANIFEST).write_text(json.dumps(rows))
        for folder, folders, files in os.walk(staging):
            for entry in (*folders, *files, ""):
                self.give(Path(folder, entry))
        self._publish(staging, name)

    def _publish(self, staging: Path, name: str) -> None:
        """Rename into place; another process may have been faster with the same content."""
        try:
            os.rename(staging, self.root / name)
        except OSError:
            if not (self.root / name).is_dir():
                raise
            remove_tree(staging)

    # ---- private folders and frozen layers

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
        (layer / _MANIFEST).write_text(_dump(table))
        name = f"{self.id}.{next(self._serial)}"
        os.rename(layer, self.root / name)
        self._tables[name] = table
        return name

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
            found = self._tables[name] = _load(self.root, name)
        return found

    def verify(self, name: str) -> None:
        """Compare a frozen layer with its table, by stamps alone where they are unchanged.

        Raises StateMismatch naming the first path that is not what it was, InfraFailure when the layer is gone.
        """
        layer = self.root / name
        table = self.table(name)
        if not layer.is_dir():
            raise InfraFailure(f"layer {layer} is gone: its owner has ended and nothing kept it")
        changed = {}
        for path, row in table.items():
            where = host_path(layer, path)
            try:
                stamp = stamp_of(os.lstat(where))
            except FileNotFoundError as error:
                raise StateMismatch(f"{path} is gone from the frozen layer {layer}") from error
            if stamp != row.stamp:
                if read_row(str(where), os.lstat(where), None, None).entry != row.entry:
                    raise StateMismatch(f"{path} is not what was frozen: {where} has changed since")
                if row.entry.kind == "dir":
                    _verify_names(where, path, table)
                changed[path] = row._replace(stamp=stamp)
        if changed:
            self._tables[name] = {**table, **changed}

    def keep(self, names: Iterable[str]) -> None:
        """Let layers outlive this process, until `collect` finds nothing that refers to them."""
        for name in names:
            path = self.root / name / _KEPT
            try:
                path.touch()
            except FileNotFoundError as error:
                raise InfraFailure(f"layer {path.parent} is gone") from error

    def close(self) -> None:
        """Remove what is private and every layer of this store that nothing kept."""
        self._janitor.close()
        _remove_owned(self.root, self.id)


def _dump(table: Table) -> str:
    rows = [[path, r.entry.kind, r.entry.mode, r.entry.digest, r.opaque, r.size, r.stamp] for path, r in table.items()]
    return json.dumps(rows, separators=(",", ":"))


def _load(root: Path, name: str) -> Table:
    try:
        rows = json.loads((root / name / _MANIFEST).read_text())
    except FileNotFoundError as error:
        raise InfraFailure(f"layer {root / name} is gone: its owner has ended and nothing kept it") from error
    except ValueError as error:
        raise StateMismatch(f"layer {root / name} has a damaged {_MANIFEST}: {error}") from error
    return {
        path: Row(Entry(kind, mode, digest), opaque, size, tuple(stamp), True)
        for path, kind, mode, digest, opaque, size, stamp in rows
    }


def _verify_names(folder: Path, path: str, table: Table) -> None:
    for name in sorted(os.listdir(folder)):
        if f"{path}/{name}" not in table:
            raise StateMismatch(f"{path}/{name} is not what was frozen: {folder / name} was not there")


def _remove_owned(root: Path, identity: str) -> None:
    private = root / f"p-{identity}"
    layers = [path for path in root.glob(f"{identity}.*") if not (path / _KEPT).exists()]
    remove_trees([*layers, *(path for path in private.glob("*") if path.name != "owner")])
    remove_tree(private)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Only one process at a time takes a name in the store or sweeps it."""
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sweep_dead(root: Path) -> int:
    dead = [private for private in root.glob("p-*") if not alive((private / "owner").read_text())]
    for private in dead:
        _remove_owned(root, private.name[2:])
    return len(dead)


def sweep(root: Path) -> int:
    """Remove everything in the store at `root` that a dead owner left and nothing keeps; how many owners that were."""
    if not root.is_dir():
        return 0
    with _locked(root):
        return _sweep_dead(root)
