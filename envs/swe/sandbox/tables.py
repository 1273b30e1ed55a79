"""The table of a frozen layer: what it holds, kept beside it, and the check that it still holds just that."""

from __future__ import annotations

import json
import os
from pathlib import Path

from refork.envs.forkable import InfraFailure, StateMismatch
from refork.envs.swe.sandbox.base import Entry
from refork.envs.swe.sandbox.scan import Row, Table, host_path, read_row, stamp_of

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
    changed = {}
    for path, row in table.items():
        where = host_path(layer, path)
        try:
            info = os.lstat(where)
        except FileNotFoundError as error:
            raise StateMismatch(f"{path} is gone from the frozen layer {layer}") from error
        stamp = stamp_of(info)
        if stamp != row.stamp:
            if read_row(str(where), info, None, None).entry != row.entry:
                raise StateMismatch(f"{path} is not what was frozen: {where} has changed since")
            if row.entry.kind == "dir":
                _verify_names(where, path, table)
            changed[path] = row._replace(stamp=stamp)
    return {**table, **changed} if changed else table


def _verify_names(folder: Path, path: str, table: Table) -> None:
    for name in sorted(os.listdir(folder)):
        if f"{path}/{name}" not in table:
            raise StateMismatch(f"{path}/{name} is not what was frozen: {folder / name} was not there")
