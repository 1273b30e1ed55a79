"""Task rows as JSON lines: exact there and back, and an error that names file, row and column for one that is wrong."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from refork.envs.forkable import BadInput
from refork.envs.swe.tasks import Kind, Split, SWETask

_CHOICES = {"kind": get_args(Kind), "split": get_args(Split)}
_FIELDS = {field.name: field for field in dataclasses.fields(SWETask)}
_HINTS = get_type_hints(SWETask)
_PATHS = ("base", "tests", "test_files", "source_files", "test_roots", "python_path")


def task_to_row(task: SWETask) -> dict[str, Any]:
    return dataclasses.asdict(task)


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Whole or not at all: a temporary file, then a rename."""
    part = path.with_name(f".{path.name}.part")
    part.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), encoding="utf-8")
    part.replace(path)


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """`(where, row)` for each line that is not blank; `where` is 'FILE, row N'. Raises BadInput."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError as error:
        raise BadInput(f"no task file {path}; build one with: refork tasks build") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8: {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{path}, row {number}", _object(f"{path}, row {number}", line)


def _object(where: str, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}: not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(row, dict):
        raise BadInput(f"{where}: a row is a JSON object, this is a {type(row).__name__}")
    return row


def read_tasks(path: Path) -> list[SWETask]:
    """All tasks of a built task set's file. Raises BadInput: file, row, column, and what is wrong there."""
    tasks: dict[str, SWETask] = {}
    for where, row in read_rows(path):
        task = task_from_row(row, where)
        if task.instance_id in tasks:
            raise BadInput(f"{where}, column 'instance_id': {task.instance_id!r} is there twice")
        tasks[task.instance_id] = task
    return list(tasks.values())


def task_from_row(row: Mapping[str, Any], where: str) -> SWETask:
    """The inverse of `task_to_row`; `where` begins every error."""
    if unknown := sorted(set(row) - set(_FIELDS)):
        raise BadInput(f"{where}, column {unknown[0]!r}: no such column; there are: {', '.join(_FIELDS)}")
    values = {}
    for name, field in _FIELDS.items():
        if name in row:
            values[name] = _value(row[name], name, f"{where}, column {name!r}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise BadInput(f"{where}, column {name!r}: missing")
    if not values["fail_to_pass"]:
        raise BadInput(f"{where}, column 'fail_to_pass': a task without a failing test has nothing to repair")
    return SWETask(**values)


def _value(value: Any, name: str, where: str) -> Any:
    kind = _HINTS[name]
    if kind == tuple[str, ...]:
        value = strings(value, where)
    elif name in _CHOICES:
        if value not in _CHOICES[name]:
            raise BadInput(f"{where}: {value!r} is none of {', '.join(_CHOICES[name])}")
    elif type(value) is not (dict if name == "metadata" else kind):
        expected = "object" if name == "metadata" else kind.__name__
        raise BadInput(f"{where}: {expected} wanted, {value!r} found")
    if name in _PATHS:
        check_paths(value if isinstance(value, tuple) else (value,), where)
    return value


def strings(value: Any, where: str) -> tuple[str, ...]:
    """A list of texts. Raises BadInput naming the first element that is none."""
    if not isinstance(value, list | tuple):
        raise BadInput(f"{where}: list of texts wanted, {value!r} found")
    for i, element in enumerate(value):
        if not isinstance(element, str):
            raise BadInput(f"{where}: element {i + 1} is {element!r}, not a text")
    return tuple(value)


def check_paths(paths: Iterable[str], where: str) -> None:
    """Raises BadInput for a path that leaves its folder."""
    for path in paths:
        if path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise BadInput(f"{where}: {path!r} is not a path inside its folder")
