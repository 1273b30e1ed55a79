"""Reads schemas, and says which key of one is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from refork.envs.forkable import BadInput, first_fault
from refork.replay.formats.schema import OPEN, Schema


def read_schema(path: Path) -> Schema:
    """Raises BadInput naming the key that is wrong, missing, unknown or still open."""
    try:
        text = path.read_text()
        data = tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}; give the schema by --schema") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not TOML: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not TOML: {error}{_quotes(text, str(error))}") from error
    if not data:
        raise BadInput(f"{path}: declares nothing; where there is no schema, `refork data check` prints a draft of one")
    if still := list(_open(data)):
        raise BadInput(f"{path}: still {OPEN}: {', '.join(still)}; fill in every one")
    try:
        return Schema.model_validate(data)
    except ValidationError as error:
        raise BadInput(f"{path}: {_fault(error)}") from error


def _quotes(text: str, error: str) -> str:
    """A hint where a value begins as text, without quotes."""
    place = re.search(r"Invalid value \(at line (\d+)", error)
    line = text.splitlines()[int(place[1]) - 1].strip() if place else ""
    return f': {line}; text stands in quotes, e.g. unit = "4 h"' if line else ""


def _open(value: Any, key: str = "") -> Iterator[str]:
    """Keys that hold a question mark in place of a value."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _open(inner, f"{key}.{name}" if key else name)
    elif OPEN in value if isinstance(value, list) else isinstance(value, str) and value.strip() == OPEN:
        yield key


def _fault(error: ValidationError) -> str:
    """The first fault; an unknown key before all, as what is missing may be what it was meant to be."""
    faults = error.errors()
    if unknown := next((fault for fault in faults if fault["type"] == "extra_forbidden"), None):
        *sections, key = map(str, unknown["loc"])
        known = _keys(sections)
        near = get_close_matches(key, known, 1)
        guess = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
        return f"{'.'.join((*sections, key))}: unknown key; {guess}"
    first = faults[0]
    key = ".".join(map(str, first["loc"]))
    match first["type"]:
        case "missing":
            return f"{key}: is missing; {'it is a section' if len(first['loc']) == 1 else 'it has no default'}"
        case "list_type":
            return f"{key}: found {first['input']!r}, expected a list, e.g. [{first['input']!r}]".replace("'", '"')
    return first_fault(error)


def _keys(sections: list[str]) -> list[str]:
    model: type[BaseModel] = Schema
    for name in sections:
        annotation = model.model_fields[name].annotation
        model = next(kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
    return list(model.model_fields)
