"""What formats of arrays without named columns share: their declaration, their names in messages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogSpec
from refork.replay.formats.rows import Names
from refork.replay.formats.schema import Schema, declared, schema_beside
from refork.replay.transitions import Transitions

KEY = "refork"
"""Under which a file written here keeps its own declaration."""


def schema_for(path: Path, schema: Schema | None, kept: str | bytes | None) -> Schema:
    """The one given, else what the file itself keeps. Raises BadInput when neither says what the actions are."""
    if schema is not None:
        if schema.columns is not None:
            raise BadInput(f"{path}: the schema given is that of a table: it has [columns]; give one without, or none")
        return schema
    if kept is None:
        beside = schema_beside(path)
        other = f" ({beside.name} is that of a table)" if beside.is_file() else ""
        raise BadInput(
            f"{path}: nothing says what its actions and ends are{other}; give --schema FILE with at least:\n\n{MINIMAL}"
        )
    try:
        return Schema.model_validate(json.loads(kept))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{path}: its own declaration ({KEY!r}) cannot be read; give --schema FILE") from error


def kept_for(spec: LogSpec) -> str:
    """What a written file keeps of its log's description."""
    return json.dumps(declared(spec))


MINIMAL = """\
[action]
kind = "?"  # discrete (then counts) or continuous (then low, high)
counts = ["?"]
[episode]
end = "column"
[reward]
text = "?"  # what it is, in words"""


def array_names(schema: Schema, features: int, actions: int, observations: str = "observations") -> Names:
    """Names of numbered columns."""
    named = list(schema.observation.names)
    shown = named if len(named) == features else [f"{observations}[{k}]" for k in range(features)]
    columns = list(schema.action.names)
    if len(columns) != actions:
        columns = [f"actions[{k}]" if actions > 1 else "actions" for k in range(actions)]
    return Names("episode", "patient", "t", shown, columns, "rewards")


def columns_of(array: np.ndarray) -> np.ndarray:
    """(n,) or (n, ...) -> (n, C), float64"""
    return np.asarray(array, np.float64).reshape(len(array), -1)


def check_holdable(log: Transitions, path: Path, kind: str) -> None:
    """Raises BadInput when a format of plain arrays would lose what a policy may do or sees."""
    if log.allowed is not None:
        raise BadInput(f"{path}: {kind} files hold no mask of allowed actions; use --to native, csv or parquet")
    if log.spec.observation.per_agent:
        raise BadInput(f"{path}: {kind} files hold one observation a row, not one per decision maker; use --to native")


def flat_actions(actions: np.ndarray) -> np.ndarray:
    """(N, n) or (N, n, d) -> (N,) for one number a row, else (N, C)"""
    flat = actions.reshape(len(actions), -1)
    return flat[:, 0] if flat.shape[1] == 1 and flat.dtype.kind == "i" else flat
