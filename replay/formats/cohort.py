"""Cohort tables: CSV or parquet, one row a step, columns as the schema declares them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.formats.draft import FirstRows, draft
from refork.replay.formats.reading import Opened
from refork.replay.formats.rows import Names, Rows
from refork.replay.formats.schema import Columns, Schema, matching, schema_beside
from refork.replay.validation import Place, check_finite

BLOCK_BYTES, BLOCK_ROWS = 1 << 21, 1 << 15
MOST_ACTIONS = 100
"""A column of more whole numbers is hardly one of actions: a draft of a schema does not suggest it."""
TRUE, FALSE = ("1", "1.0", "true", "True", "TRUE"), ("0", "0.0", "false", "False", "FALSE")


def pyarrow() -> Any:
    """The package. Raises BadInput when it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput("tables need the package pyarrow: pip install 'refork[clinical]'") from error
    return pyarrow


def table_columns(path: Path) -> list[str]:
    """Names of the columns. Raises BadInput when the file is empty, or no table."""
    pa = pyarrow()
    try:
        if path.suffix == ".parquet":
            names = list(pa.parquet.read_schema(path).names)
        else:
            with pa.csv.open_csv(path, read_options=pa.csv.ReadOptions(use_threads=False)) as reader:
                names = list(reader.schema.names)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    if path.suffix != ".parquet" and len(names) == 1 and (other := re.search(r"[;\t|]", names[0])):
        raise BadInput(f"{path}: its columns are separated by {other[0]!r}, expected commas; write it again with them")
    if twice := [name for k, name in enumerate(names) if name in names[:k]]:
        raise BadInput(f"{path}: column {twice[0]!r} is there twice; column names must differ")
    return names


def unreadable(path: Path, error: Exception) -> BadInput:
    """To be raised when a file cannot be read as what its name says."""
    text = " ".join(str(error).split())
    row = re.search(r"Row #(\d+)", text)
    where = f"row {int(row[1]) - 1} (line {row[1]}): " if row else ""  # pyarrow counts the header as row 1
    return BadInput(f"{path}: {where}cannot be read as {path.suffix.lstrip('.') or 'a table'}: {text[:200]}")


def no_schema(path: Path, columns: list[str]) -> BadInput:
    """To be raised when nothing declares what the columns are."""
    return BadInput(
        f"{path}: no schema says what its columns are; write {schema_beside(path)} (or give --schema FILE), "
        f"beginning with:\n\n{draft(path, columns, first_rows(path))}"
    )


def first_rows(path: Path) -> FirstRows:
    """What a draft of the schema says about the values. Raises BadInput when they cannot be read."""
    pa = pyarrow()
    try:
        if path.suffix == ".parquet":
            with pa.parquet.ParquetFile(path) as file:
                batch = next(file.iter_batches(BLOCK_ROWS, use_threads=False), None)
        else:
            with pa.csv.open_csv(path, read_options=pa.csv.ReadOptions(use_threads=False)) as reader:
                batch = next(iter(reader), None)
    except (OSError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    if batch is None:
        return FirstRows(0, {})
    largest = {name: _largest_whole(batch.column(name)) for name in batch.schema.names}
    return FirstRows(batch.num_rows, {name: most for name, most in largest.items() if most is not None})


def _largest_whole(column: Any) -> int | None:
    """None: something else than whole numbers from 0 to fewer than `MOST_ACTIONS` is in it, or nothing at all."""
    types = pyarrow().types
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        return None
    values = column.drop_null().to_numpy(zero_copy_only=False)
    if not len(values) or not ((values >= 0) & (values < MOST_ACTIONS) & (values == np.floor(values))).all():
        return None
    return int(values.max())


@dataclass(frozen=True)
class Table:
    """A table whose columns are declared."""

    path: Path
    columns: Columns
    names: Names
    behaviour: str
    """Column of the probability, or its logarithm; "": none."""
    allowed: list[str]

    @classmethod
    def open(cls, path: Path, schema: Schema | None) -> Table:
        """Raises BadInput naming a column that is declared but not there."""
        found = table_columns(path)
        if schema is None:
            raise no_schema(path, found)
        if schema.columns is None:
            raise BadInput(f"{path}: the schema has no [columns]; a draft:\n\n{draft(path, found, first_rows(path))}")
        columns, file = schema.columns, str(path)

        def one(key: str) -> str:
            named: str = getattr(columns, key)
            matches = matching([named], found, key, file) if named else [key]
            if len(matches) > 1:
                raise BadInput(f"{file}: columns.{key} = {named!r} names {', '.join(matches)}; name one of them")
            return matches[0]

        if (schema.episode.end == "column") != bool(columns.terminated):
            raise BadInput(f'{file}: schema: episode.end = "column" and columns.terminated belong together')
        logarithm = bool(columns.behaviour_log_probability)
        behaviour = one("behaviour_log_probability" if logarithm else "behaviour_probability")
        names = Names(
            one("episode"),
            one("patient"),
            one("step") if columns.step else one("time"),
            matching(columns.observations, found, "observations", file),
            matching(columns.actions, found, "actions", file),
            one("reward"),
            one("terminated"),
            one("truncated"),
            f"exp({behaviour})" if logarithm else behaviour,
        )
        allowed = matching(columns.allowed, found, "allowed", file) if columns.allowed else []
        expected = sum(schema.spec(names.observations, names.actions, file).action.sizes)
        if allowed and (schema.action.kind != "discrete" or len(allowed) != expected):
            raise BadInput(f"{file}: columns.allowed names {len(allowed)} columns, expected one per action: {expected}")
        known = logarithm or columns.behaviour_probability
        table = cls(path, columns, names, behaviour if known else "", allowed)
        if leaked := [name for name in names.observations if name in table._hidden()]:
            raise BadInput(
                f"{file}: column {leaked[0]!r} is an observation (schema: columns.observations) and declared as "
                "something else too: a policy would see what is not there when it decides; name the observations alone"
            )
        return table

    def blocks(self) -> Iterator[Rows]:
        """The file, some rows at a time. Raises BadInput at a cell that is not what it should be."""
        place = Place(str(self.path), header=_header(self.path))
        for batch in self._batches():
            yield self._rows(batch, place)
            place = place.after(batch.num_rows)

    def _hidden(self) -> list[str]:
        """Columns that no policy may see: who it was, what was decided, what came of it."""
        names, columns = self.names, self.columns
        ends = ((names.terminated, columns.terminated), (names.truncated, columns.truncated))
        optional = [name for name, given in (*ends, (self.behaviour, self.behaviour)) if given]
        return [names.episode, names.patient, *names.actions, names.reward, *optional]

    def _wanted(self) -> list[str]:
        return list(dict.fromkeys([*self._hidden(), self.names.time, *self.names.observations, *self.allowed]))

    def _batches(self) -> Iterator[Any]:
        """Record batches of the wanted columns; of CSV, as text."""
        pa, wanted = pyarrow(), self._wanted()
        try:
            if self.path.suffix == ".parquet":
                with pa.parquet.ParquetFile(self.path) as file:
                    yield from file.iter_batches(BLOCK_ROWS, columns=wanted, use_threads=False)
                return
            read = pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES)
            convert = pa.csv.ConvertOptions(
                include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=True
            )
            with pa.csv.open_csv(self.path, read_options=read, convert_options=convert) as reader:
                yield from reader
        except (OSError, pa.ArrowException) as error:
            raise unreadable(self.path, error) from error

    def _rows(self, batch: Any, place: Place) -> Rows:
        names, columns, count = self.names, self.columns, batch.num_rows

        def many(wanted: list[str]) -> np.ndarray:
            return np.stack([_numbers(batch, name, place) for name in wanted], 1)

        def flags(name: str, given: str) -> np.ndarray:
            return _flags(batch, name, place) if given else np.zeros(count)

        behaviour = _numbers(batch, self.behaviour, place) if self.behaviour else np.full(count, np.nan)
        if columns.behaviour_log_probability:
            behaviour = np.exp(behaviour)
        allowed = self._allowed(batch, place) if self.allowed else None
        return Rows(
            _labels(batch, names.episode),
            _labels(batch, names.patient),
            _numbers(batch, names.time, place),
            many(names.observations),
            many(names.actions),
            _numbers(batch, names.reward, place),
            flags(names.terminated, columns.terminated),
            flags(names.truncated, columns.truncated),
            behaviour,
            allowed,
        )

    def _allowed(self, batch: Any, place: Place) -> np.ndarray:
        flags = np.stack([_flags(batch, name, place) for name in self.allowed], 1)
        check_finite(flags, self.allowed, place, "0 or 1")
        return flags == 1


def _labels(batch: Any, name: str) -> np.ndarray:
    pa = pyarrow()
    text = pa.compute.cast(batch.column(name), pa.string())
    return np.asarray(text.to_numpy(zero_copy_only=False), object)


def _numbers(batch: Any, name: str, place: Place) -> np.ndarray:
    """(n,) float64, NaN for null. Raises BadInput at a cell that is no number."""
    pa, column = pyarrow(), batch.column(name)
    try:
        found = pa.compute.cast(column, pa.float64())
    except pa.ArrowException:
        row = next(k for k in range(len(column)) if not _is_number(column.slice(k, 1)))
        raise place.fault(row, name, repr(column[row].as_py()), "a number") from None
    return np.asarray(found.to_numpy(zero_copy_only=False), np.float64)


def _is_number(cell: Any) -> bool:
    """Whether an array of one cell casts: what Python takes for a number (" 1", "1_0") need not."""
    pa = pyarrow()
    try:
        pa.compute.cast(cell, pa.float64())
    except pa.ArrowException:
        return False
    return True


def _flags(batch: Any, name: str, place: Place) -> np.ndarray:
    """(n,) float64: 0 or 1, NaN for null. Raises BadInput for any other cell."""
    pa = pyarrow()
    text = pa.compute.cast(batch.column(name), pa.string())
    yes = pa.compute.is_in(text, pa.array(TRUE)).to_numpy(zero_copy_only=False).astype(bool)
    no = pa.compute.is_in(text, pa.array(FALSE)).to_numpy(zero_copy_only=False).astype(bool)
    empty = text.is_null().to_numpy(zero_copy_only=False).astype(bool)
    if (wrong := ~(yes | no | empty)).any():
        row = int(np.argmax(wrong))
        raise place.fault(row, name, repr(text[row].as_py()), "0 or 1")
    return np.where(empty, np.nan, yes)


def open_table(path: Path, schema: Schema | None) -> Opened:
    """A table as its schema declares it. Raises BadInput: no schema, or a column is not there."""
    table = Table.open(path, schema)
    assert schema is not None
    return Opened(path, schema, table.names, table.blocks(), header=_header(path))


def _header(path: Path) -> int:
    return 0 if path.suffix == ".parquet" else 1
