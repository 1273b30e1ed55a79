"""Reads `[env.options]` of a job; what is wrong is named in one line."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import ValidationError
from refork.envs.forkable import BadInput
from refork.trainers.config import Config

Options = TypeVar("Options", bound=Config)


def env_options(model: type[Options], data: Mapping[str, Any]) -> Options:
    """Raises BadInput naming the first wrong key."""
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise BadInput(_message(model, error)) from error


def _message(model: type[Config], error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(["env.options", *(str(part) for part in first["loc"])])
    if first["type"] == "extra_forbidden":
        known = tuple(model.model_fields)
        near = get_close_matches(str(first["loc"][0]), known, 1)
        return f"{key}: no such option; " + (f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}")
    if first["type"] == "value_error":
        return f"env.options.{first['msg'].removeprefix('Value error, ')}"
    said = first["msg"]
    return f"{key}: {said[:1].lower()}{said[1:]}, got {first['input']!r}"
