"""Who owns what in the layer store, and removing what has no living owner."""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from refork.envs.owner import alive, owner
from refork.envs.swe.sandbox.janitor import remove_trees
from refork.envs.swe.sandbox.trees import remove_tree

KEPT = "kept"
"""Name of the file in a frozen layer that lets it outlive its owner."""
SHARED = "c-"
"""Before the content id in the name of a layer that came from another host."""


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Only one process at a time takes a name in the store or sweeps it."""
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def claim(root: Path) -> str:
    """Sweep, then take a name nobody has: `p-NAME` is the private folder, `NAME.N` are the layers of this process."""
    with locked(root):
        _sweep_dead(root)
        while True:
            name = secrets.token_hex(3)
            if not (root / f"p-{name}").exists() and not any(root.glob(f"{name}.*")):
                break
        (root / f"p-{name}").mkdir()
        (root / f"p-{name}" / "owner").write_text(owner())
    return name


def remove_owned(root: Path, name: str) -> list[str]:
    """Remove the private folder and the layers of one owner, except those that are kept; the shared layers it used."""
    private = root / f"p-{name}"
    layers = [path for path in root.glob(f"{name}.*") if not (path / KEPT).exists()]
    shared = [mark.name for mark in private.glob(f"{SHARED}*")]
    remove_trees([*layers, *(path for path in private.glob("*") if path.name != "owner")])
    remove_tree(private)
    return shared


def release(root: Path, private: Path, layer: str) -> None:
    """One user of a shared layer less; it goes with the last, unless it is kept."""
    with locked(root):
        (private / layer).unlink(missing_ok=True)
        _remove_unused(root, layer)


def _remove_unused(root: Path, layer: str) -> bool:
    """Remove a shared layer that nobody uses or keeps. Killed in the middle, it leaves a folder without owner."""
    if not (root / layer).is_dir() or (root / layer / KEPT).exists() or any(root.glob(f"p-*/{layer}")):
        return False
    aside = root / f"p-{secrets.token_hex(8)}"
    (root / layer).rename(aside)
    remove_tree(aside)
    return True


def _sweep_dead(root: Path) -> int:
    dead = [private for private in root.glob("p-*") if not _has_owner(private)]
    for private in dead:
        for layer in remove_owned(root, private.name[2:]):
            _remove_unused(root, layer)
    return len(dead)


def _has_owner(private: Path) -> bool:
    try:
        return alive((private / "owner").read_text())
    except FileNotFoundError:  # a removal that was interrupted
        return False


def sweep(root: Path) -> int:
    """Remove everything in the store at `root` that a dead owner left and nothing keeps; how many owners that were."""
    if not root.is_dir():
        return 0
    with locked(root):
        return _sweep_dead(root)


def collect(root: Path, live: Iterable[str]) -> int:
    """Remove kept layers that are not among the names `live`, and bases that no living process uses; how many.

    A layer whose owner lives only loses its mark and goes with its owner.
    """
    if not root.is_dir():
        return 0
    with locked(root):
        _sweep_dead(root)
        wanted = set(live)
        owners = {private.name[2:] for private in root.glob("p-*")}
        used = {path.name for path in root.glob("p-*/b-*")}
        old = [path for path in root.glob("b-*") if path.name not in used]
        for mark in root.glob(f"*.*/{KEPT}"):
            layer = mark.parent
            if layer.name not in wanted:
                mark.unlink()
                if layer.name.partition(".")[0] not in owners:
                    old.append(layer)
        remove_trees(old)
        return len(old) + sum(_let_go(root, path) for path in root.glob(f"{SHARED}*") if path.name not in wanted)


def _let_go(root: Path, layer: Path) -> bool:
    (layer / KEPT).unlink(missing_ok=True)
    return _remove_unused(root, layer.name)
