"""RLlib's offline column format: parquet with a row a step, `eps_id`, `obs`, `actions`, `rewards`, `new_obs`,

`terminateds`, `truncateds`, and where known `action_logp`; one file, or a folder of them in the order of their names.
As written here also `t`, `dt` and `patient`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.formats import arrays
from refork.replay.formats.cohort import pyarrow, table_columns, unreadable
from refork.replay.formats.following import check_following
from refork.replay.formats.reading import Opened
from refork.replay.formats.rows import Rows
from refork.replay.formats.schema import Schema
from refork.replay.transitions import Transitions
from refork.replay.validation import Place

BLOCK = 1 << 15
NEEDED = ("eps_id", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds")
OPTIONAL = ("action_logp", "dt", "patient")


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet")) if path.is_dir() else [path]


def fits(path: Path) -> bool:
    """By the columns; a folder that holds parquet files is RLlib's."""
    if path.is_dir():
        return bool(_files(path))
    return path.suffix == ".parquet" and bool({"obs", "item"} & set(table_columns(path)))


def open_path(path: Path, schema: Schema | None) -> Opened:
    """Raises BadInput when a column is missing, or rows are packed."""
    first, pa = _files(path)[0], pyarrow()
    there = table_columns(first)
    if "obs" not in there and "item" in there:
        raise BadInput(f"{path}: holds whole episodes, packed; write it with output_write_episodes=False")
    for name in NEEDED:
        if name not in there:
            raise BadInput(f"{first}: column {name!r} is missing; the file has: {', '.join(there)}")
    metadata = pa.parquet.read_schema(first).metadata or {}
    found = arrays.schema_for(path, schema, metadata.get(arrays.KEY.encode()))
    blocks = _blocks(path, [name for name in (*NEEDED, *OPTIONAL) if name in there])
    start = next(blocks, None)
    if start is None:
        raise BadInput(f"{path}: holds no rows; there is nothing to learn from")
    names = arrays.array_names(found, start.observations.shape[1], start.actions.shape[1], "obs")
    return Opened(path, found, names, _chained(start, blocks))


def _chained(start: Rows, rest: Iterator[Rows]) -> Iterator[Rows]:
    yield start
    yield from rest


def _blocks(path: Path, wanted: list[str]) -> Iterator[Rows]:
    """Raises BadInput at a cell of another kind, or a `new_obs` that is not the next row's `obs`."""
    place, last, pa = Place(str(path)), None, pyarrow()
    for file in _files(path):
        try:
            with pa.parquet.ParquetFile(file) as opened:
                for batch in opened.iter_batches(BLOCK, columns=wanted, use_threads=False):
                    rows = _rows(batch, place, last)
                    check_following(rows, last, place, "new_obs")
                    last, place = rows.part(slice(-1, None)), place.after(len(rows))
                    yield rows
        except (OSError, pa.ArrowException) as error:
            raise unreadable(file, error) from error


def _rows(batch: Any, place: Place, last: Rows | None) -> Rows:
    columns = {name: batch.column(name) for name in batch.schema.names}
    flat = {name: _flat(columns[name], name, place) for name in columns if name not in ("eps_id", "patient")}
    labels = np.array([None if label is None else str(label) for label in columns["eps_id"].to_pylist()], object)
    count = len(labels)

    def one(name: str) -> np.ndarray:
        if flat[name].shape[1] != 1:
            raise place.fault(0, name, f"{flat[name].shape[1]} values", "one number a row")
        return flat[name][:, 0]

    patient = np.array(columns["patient"].to_pylist(), object) if "patient" in columns else labels
    logp = one("action_logp") if "action_logp" in flat else np.full(count, np.nan)
    return Rows(
        labels,
        patient,
        _counted(labels, last),
        flat["obs"],
        flat["actions"],
        one("rewards"),
        one("terminateds"),
        one("truncateds"),
        np.exp(logp),
        following=flat["new_obs"],
        dt=one("dt") if "dt" in flat else None,
    )


def _counted(labels: np.ndarray, last: Rows | None) -> np.ndarray:
    """(n,): number of each row in its episode; the format orders rows, and need not number them."""
    begins = np.concatenate([[True], labels[1:] != labels[:-1]])
    time = np.arange(len(labels)) - np.maximum.accumulate(np.where(begins, np.arange(len(labels)), 0))
    if last is not None and labels[0] == last.episode[0]:
        time = time + np.where(np.cumsum(begins) == 1, last.time[0] + 1, 0)
    return time.astype(np.float64)


def _flat(column: Any, name: str, place: Place) -> np.ndarray:
    """A column of numbers, or of equally long lists of them -> (n, C), float64, NaN for null."""
    pa = pyarrow()
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        raise place.fault(0, name, "packed text", "numbers; write it with output_compress_columns=[]")
    if isinstance(column, pa.ExtensionArray):  # Ray Data's own tensors
        column = column.storage
    if not _is_list(column.type):
        return _plain(column)[:, None]
    lengths = pa.compute.list_value_length(column).to_numpy(zero_copy_only=False)
    if (wrong := lengths != lengths[0]).any():
        row = int(np.argmax(wrong))
        raise place.fault(row, name, f"{lengths[row]} values", f"{lengths[0]} as in the rows before")
    values = column.flatten()
    while _is_list(values.type):
        values = values.flatten()
    return _plain(values).reshape(len(column), -1)


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _plain(values: Any) -> np.ndarray:
    pa = pyarrow()
    return np.asarray(pa.compute.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def write(log: Transitions, path: Path) -> list[Path]:
    """Raises BadInput when the format cannot hold the log."""
    arrays.check_holdable(log, path, "rllib")
    pa, writer = pyarrow(), None
    try:
        for first in range(0, len(log), BLOCK):
            table = _table(log, np.arange(first, min(first + BLOCK, len(log))))
            if writer is None:
                kept = {arrays.KEY: arrays.kept_for(log.spec)}
                writer = pa.parquet.ParquetWriter(path, table.schema.with_metadata(kept))
            writer.write_table(table.replace_schema_metadata({arrays.KEY: arrays.kept_for(log.spec)}))
    finally:
        if writer is not None:
            writer.close()
    return [path]


def _table(log: Transitions, steps: np.ndarray) -> Any:
    pa, rows, episodes = pyarrow(), log.rows(steps), log.episode[steps]
    patients = log.patients[episodes]
    count = len(steps)
    return pa.table(
        {
            "eps_id": pa.array([str(e) for e in episodes]),
            "agent_id": pa.nulls(count, pa.string()),
            "module_id": pa.nulls(count, pa.string()),
            "obs": _cells(log.observations[rows]),
            "actions": _cells(arrays.flat_actions(log.actions[steps])),
            "rewards": pa.array(log.rewards[steps]),
            "new_obs": _cells(log.observations[rows + 1]),
            "terminateds": pa.array(log.terminated[steps]),
            "truncateds": pa.array(log.truncated[steps]),
            "action_logp": pa.array(np.log(log.behaviour[steps].astype(np.float64)), from_pandas=True),
            "t": pa.array(steps - log.starts[episodes]),
            "dt": pa.array(log.dt[steps]),
            "patient": pa.array([log.patient_names[p] for p in patients] if log.patient_names else patients),
        }
    )


def _cells(values: np.ndarray) -> Any:
    """(n,) -> numbers; (n, C) -> lists"""
    pa = pyarrow()
    if values.ndim == 1:
        return pa.array(values)
    offsets = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(values.ravel()))
