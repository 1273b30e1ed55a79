"""Writes a log as a cohort table with its schema beside it; reading it back gives the same log."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogSpec
from refork.replay.formats.cohort import pyarrow
from refork.replay.formats.schema import Schema, declared, schema_beside
from refork.replay.formats.schema_file import read_schema
from refork.replay.transitions import Transitions

EPISODES = 4096
"""Written at once."""


def write(log: Transitions, path: Path) -> list[Path]:
    """As the suffix of `path` says, CSV or parquet. Raises BadInput for observations that differ by decision maker."""
    if log.spec.observation.per_agent:
        raise BadInput(f"{path}: a table holds one observation a row, not one per decision maker; use --to native")
    schema, text = schema_beside(path), schema_text(log.spec, log.allowed is not None)
    check_schema_beside(path, text)
    write_table((_columns(log, first) for first in range(0, log.episodes, EPISODES)), path)
    if not schema.exists():  # one that says the same may have comments
        schema.write_text(text)
    return [path, schema]


def check_schema_beside(path: Path, text: str) -> None:
    """Raises BadInput when the schema that is beside a table to be written says something else than `text`."""
    schema = schema_beside(path)
    if schema.exists() and read_schema(schema) != Schema.model_validate(tomllib.loads(text)):
        raise BadInput(
            f"{schema}: is there already and describes other columns than {path.name} would have; choose another name"
        )


def write_table(blocks: Iterator[dict[str, np.ndarray]], path: Path) -> None:
    """Blocks of columns; NaN and None become empty cells."""
    pa, writer = pyarrow(), None
    try:
        for block in blocks:
            arrays = {name: pa.array(values, from_pandas=True) for name, values in block.items()}
            table = pa.table(arrays)
            if writer is None:
                make = pa.parquet.ParquetWriter if path.suffix == ".parquet" else pa.csv.CSVWriter
                writer = make(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _columns(log: Transitions, first: int) -> dict[str, np.ndarray]:
    """Rows of some episodes: a row a step, and one for what followed the last."""
    part = log.subset(np.arange(first, min(first + EPISODES, log.episodes)))
    lengths, episodes = part.lengths + 1, np.arange(first, first + part.episodes)
    count = int(lengths.sum())
    decided = np.ones(count, bool)
    decided[np.cumsum(lengths) - 1] = False
    patients = np.repeat(part.patients, lengths)
    columns: dict[str, np.ndarray] = {
        "traj": np.repeat(episodes, lengths),
        "patient": np.asarray(log.patient_names, object)[patients] if log.patient_names else patients,
        "time": _times(part, decided, lengths),
    }
    spec = log.spec
    if spec.observation.kind == "states":
        columns["o:state"] = part.observations
    else:
        columns |= {name: part.observations[:, k] for k, name in enumerate(observation_names(spec))}
    # (N, n, d) -> (N, n * d)
    actions = part.actions.reshape(len(part), -1)
    columns |= {name: _spread(actions[:, k], decided) for k, name in enumerate(action_names(spec))}
    columns["r:reward"] = _spread(part.rewards, decided)
    columns["terminated"] = _spread(part.terminated, decided)
    columns["truncated"] = _spread(part.truncated, decided)
    columns["behaviour_probability"] = _spread(part.behaviour, decided)
    if part.allowed is not None:
        columns |= {name: part.allowed[:, n, a] for name, n, a in _allowed_names(spec)}
    return columns


def _times(part: Transitions, decided: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(R,): time since the start of the episode."""
    dt = np.zeros(len(decided))
    dt[decided] = part.dt
    elapsed = np.cumsum(dt) - dt
    return elapsed - np.repeat(elapsed[np.cumsum(lengths) - lengths], lengths)


def _spread(values: np.ndarray, decided: np.ndarray) -> Any:
    """(N,) -> (R,) with nothing where no decision is."""
    pa = pyarrow()
    full = np.zeros(len(decided), values.dtype)
    full[decided] = values
    empty = ~decided | (np.isnan(full) if full.dtype.kind == "f" else False)
    return pa.array(full, mask=empty)


def observation_names(spec: LogSpec) -> list[str]:
    """Column names of the features, all beginning with o: or m:."""
    names = spec.observation.names or tuple(f"f{k}" for k in range(spec.observation.size))
    return [name if name.startswith(("o:", "m:")) else f"o:{name}" for name in names]


def action_names(spec: LogSpec) -> list[str]:
    """Column names of the actions, all beginning with a:."""
    action = spec.action
    names = action.names or tuple(f"action{k}" for k in range(action.agents))
    names = tuple(name if name.startswith("a:") else f"a:{name}" for name in names)
    if action.kind == "discrete" or action.width == 1:
        return list(names)
    return [f"{name}.{d}" for name in names for d in range(action.width)]


def _allowed_names(spec: LogSpec) -> list[tuple[str, int, int]]:
    names = zip(action_names(spec), spec.action.sizes, strict=True)
    return [(f"allowed:{name}.{a}", n, a) for n, (name, size) in enumerate(names) for a in range(size)]


def schema_text(spec: LogSpec, allowed: bool) -> str:
    """The schema of such a table."""
    columns: dict[str, Any] = {
        "episode": "traj",
        "patient": "patient",
        "time": "time",
        "observations": ["o:state"] if spec.observation.kind == "states" else observation_names(spec),
        "actions": action_names(spec),
        "reward": "r:reward",
        "terminated": "terminated",
        "truncated": "truncated",
        "behaviour_probability": "behaviour_probability",
    }
    if allowed:
        columns["allowed"] = [name for name, _, _ in _allowed_names(spec)]
    sections = {"columns": columns} | {k: v for k, v in declared(spec).items() if isinstance(v, dict)}
    sections["episode"]["last_row"] = "observation"
    sections["observation"].pop("names", None)  # the columns name them
    lines = [f"env = {json.dumps(spec.env)}"]
    for name, values in sections.items():
        if values:
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"
