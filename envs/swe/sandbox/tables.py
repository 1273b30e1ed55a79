"""The table of a frozen layer: what it holds, kept beside it, and the check that it still holds just that."""

from __future__ import annotations

import json
import os
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateMismatch
from refork.envs.swe.sandbox.base import Entry
from refork.envs.swe.sandbox.scan import Row, Table, host_name, host_path, scan_layer, stamp_of

FORMAT = 2
"""Of the rows; part of a base's name, so that another version's bases are made anew and not taken for damaged."""
_FILE = "m.json"


def save_table(layer: Path, table: Table) -> None:
    rows = [[path, r.entry.kind, r.entry.mode, r.entry.digest, r.opaque, r.size, r.stamp] for path, r in table.items()]
    (layer / _FILE).write_text(json.dumps(rows, separators=(",", ":")))


def load_table(layer: Path) -> Table:
    """Raises InfraFailure when the layer is gone, StateMismatch when its table is damaged."""
    try:
        rows = json.loads((layer / _FILE).read_text())
        return {
            path: Row(Entry(kind, mode, digest), opaque, size, tuple(stamp), True)
            for path, kind, mode, digest, opaque, size, stamp in rows
        }
    except FileNotFoundError as error:
        raise gone(layer) from error
    except (ValueError, TypeError) as error:
        raise StateMismatch(f"layer {layer} has a damaged {_FILE}: {error}") from error


def gone(layer: Path) -> InfraFailure:
    return InfraFailure(f"layer {layer} is gone: its owner has ended, or it made room for newer ones")


def verify_table(layer: Path, table: Table) -> Table:
    """Compare a layer with its table, by stamps alone where they are unchanged; the table with its present stamps.

    Raises StateMismatch naming the first path that is not what it was, InfraFailure when the layer is gone.
    """
    if not layer.is_dir():
        raise gone(layer)
    if _unchanged(layer, table):
        return table
    found = scan_layer(layer, table, None)
    for path in sorted({*table, *found}):
        was, now = table.get(path), found.get(path)
        if was is None or now is None or was.entry != now.entry or was.opaque != now.opaque:
            what = "was not there" if was is None else "is gone" if now is None else "has changed"
            raise StateMismatch(f"{path} is not what was frozen: {host_path(layer, path)} {what}")
    return {path: row._replace(certain=True) for path, row in found.items()}


def _unchanged(layer: Path, table: Table) -> bool:
    """Whether all stamps are what they were; a folder's stamp changes with the names in it."""
    top = str(layer)  # text, not paths: every restore comes by here for every path of its layers
    try:
        return all(stamp_of(os.lstat(host_name(top, path))) == row.stamp for path, row in table.items())
    except OSError:  # gone, or behind a folder that its owner has closed to himself
        return False
