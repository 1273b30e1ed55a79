"""The formats, by name: how a file of each is told, opened and written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from refork.envs.forkable import BadInput
from refork.replay import transitions
from refork.replay.formats import cohort, cohort_writer, d4rl, minari, rllib
from refork.replay.formats.reading import Opened, write_native
from refork.replay.formats.schema import Schema, schema_beside
from refork.replay.formats.schema_file import read_schema
from refork.replay.log_checks import check_log
from refork.replay.transitions import Transitions


@dataclass(frozen=True)
class Kind:
    """One format of files."""

    name: str
    suffixes: tuple[str, ...]
    """Of a file that is written; (): it is a folder."""
    fits: Callable[[Path], bool]
    """Whether an existing path is of this kind, by its name and what is in it."""
    open: Callable[[Path, Schema | None], Opened]
    write: Callable[[Transitions, Path], list[Path]]
    """Returns the files it made."""


def _table(suffix: str) -> Callable[[Path], bool]:
    return lambda path: path.is_file() and path.suffix == suffix


KINDS = {
    kind.name: kind
    for kind in (
        Kind("rllib", (".parquet",), rllib.fits, rllib.open_path, rllib.write),  # first: told by its columns
        Kind("csv", (".csv",), _table(".csv"), cohort.open_table, cohort_writer.write),
        Kind("parquet", (".parquet",), _table(".parquet"), cohort.open_table, cohort_writer.write),
        Kind("d4rl", d4rl.SUFFIXES, d4rl.fits, d4rl.open_file, d4rl.write),
        Kind("minari", (), minari.fits, minari.open_folder, minari.write),
    )
}
TABLES = ("csv", "parquet")
SHIPPED = Path(__file__).parent
"""Holds schemas of published layouts."""
NATIVE = "native"
"""A folder of plain arrays (replay/transitions.py)."""


def kind_of(path: Path) -> str:
    """Name of the format. Raises BadInput when there is no such file, or it is of none of them."""
    if not path.exists():
        raise BadInput(f"{path}: there is no such file")
    if (path / "log.json").exists():
        return NATIVE
    for kind in KINDS.values():
        if kind.fits(path):
            return kind.name
    raise BadInput(f"{path}: not a log of a known format ({NATIVE}, {', '.join(KINDS)})")


def schema_of(path: Path, schema: Path | None) -> Schema | None:
    """The one given (a file, or the name of one shipped), else the one that lies beside the file, if any.

    One beside with columns is that of a table of the same name; arrays are not described by it.
    """
    if schema is not None:
        shipped = SHIPPED / f"{schema.name}.toml"
        return read_schema(shipped if str(schema) == schema.name and shipped.is_file() else schema)
    beside = schema_beside(path)
    found = read_schema(beside) if beside.is_file() else None
    return None if found is not None and found.columns is not None and kind_of(path) not in TABLES else found


def to_native(path: Path, schema: Path | None, folder: Path) -> None:
    """Convert any file to a log folder. Raises BadInput at the first fault."""
    name = kind_of(path)
    if name == NATIVE:
        transitions.save(_sound(path, schema), folder, transitions.notes_of(path))
        return
    write_native(KINDS[name].open(path, schema_of(path, schema)), folder)


def native_of(path: Path, schema: Path | None, folder: Path) -> Path:
    """The log folder of a file: itself, or a conversion as `folder`. Raises BadInput at the first fault."""
    if kind_of(path) == NATIVE:
        _sound(path, schema)
        return path
    to_native(path, schema, folder)
    return folder


def _sound(folder: Path, schema: Path | None) -> Transitions:
    """The log in a folder. Raises BadInput at its first fault."""
    if schema is not None:
        raise BadInput(f"{folder}: a log folder declares itself; leave the schema ({schema}) out")
    log = transitions.load(folder)
    check_log(log, str(folder))
    return log


def write_as(log: Transitions, path: Path, kind: str) -> list[Path]:
    """Write a log in a format; returns the files made. Raises BadInput where the format cannot hold it."""
    check_new(path, kind)
    if kind == NATIVE:
        transitions.save(log, path)
        return [path]
    path.parent.mkdir(parents=True, exist_ok=True)
    return KINDS[kind].write(log, path)


def check_new(path: Path, kind: str) -> None:
    """Raises BadInput when `path` cannot be made as that format."""
    if path.exists():
        raise BadInput(f"{path}: is there already; choose another name, or remove it")
    if kind != NATIVE and kind not in KINDS:
        raise BadInput(f"no format {kind!r}; there are: {NATIVE}, {', '.join(KINDS)}")
    suffixes = KINDS[kind].suffixes if kind != NATIVE else ()
    if suffixes and path.suffix not in suffixes:
        raise BadInput(f"{path}: the name of a {kind} file ends in {suffixes[0]}")


def cached(path: Path, schema: Path | None, folder: Path) -> Path:
    """As `native_of`, but a conversion is kept in `folder` by the content of file and schema, and used again."""
    if kind_of(path) == NATIVE:
        return native_of(path, schema, folder)
    declared = schema_of(path, schema)
    found = hashlib.sha256(f"{transitions.FORMAT} {path.name} {declared}".encode())
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            with file.open("rb") as stream:
                found.update(hashlib.file_digest(stream, "sha256").digest())
    kept = folder / found.hexdigest()[:24]
    if not (kept / "log.json").exists():
        to_native(path, schema, kept)
    return kept
