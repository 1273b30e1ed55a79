"""Reads a job: a TOML file and dotted overrides into one JobConfig. Errors name file, key and the nearest right one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from refork.cluster.storage import check_credentials
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig, TrainerConfig, kinds, trainer_config_class

FLAGS = ("--dry-run", "--resume")


@dataclass(frozen=True)
class Override:
    """`--key value` of the command line; `flag` is the key as typed, for messages."""

    flag: str
    value: str | None
    """None: the flag stood alone."""

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(part.replace("-", "_") for part in self.flag.removeprefix("--").split("."))


def read_job(job: str, overrides: Sequence[str] = ()) -> JobConfig:
    """The job in file `job` (or the shipped recipe of that name) with `overrides` laid over. Raises BadInput."""
    path = find_job(job)
    data = _read_toml(path)
    given = parse_overrides(overrides)
    kind = _algorithm(data, given, path)
    for override in given:
        _set(data, override, kind)
    data["trainer"] = {"kind": kind, **data.get("trainer", {})}
    sources = {override.path: override.flag for override in given}
    config = _placed(_validated(data, trainer_config_class(kind), str(path), sources))
    check_credentials(config.storage)
    return config


def _placed(job: JobConfig) -> JobConfig:
    """With whole paths, so that a run is found to be what it is from any folder."""
    env, options = job.env, dict(job.env.options)
    if isinstance(schema := options.get("schema_file"), str) and Path(schema).exists():  # else one that is shipped
        options["schema_file"] = str(Path(schema).absolute())
    tasks = None if env.tasks is None else env.tasks.absolute()
    return job.model_copy(update={"env": env.model_copy(update={"tasks": tasks, "options": options})})


def find_job(job: str) -> Path:
    """A path that exists, else a shipped recipe by name. Raises BadInput naming those there are."""
    if Path(job).is_file():
        return Path(job)
    names = recipes()
    if job in names:
        return Path(str(files("refork.trainers.recipes") / f"{job}.toml"))
    if (Path(job) / "job.toml").is_file():
        raise BadInput(f"{job}: is the folder of a run; add --resume to go on with it")
    near = get_close_matches(job, names, 1)
    guess = f"did you mean {near[0]}?" if near else f"shipped recipes: {', '.join(names)}"
    raise BadInput(f"{job}: no such job file, nor a recipe of that name; {guess}")


def recipes() -> list[str]:
    """Names of the job files that are shipped."""
    folder = files("refork.trainers.recipes")
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def parse_overrides(tokens: Sequence[str]) -> list[Override]:
    """`--a.b value`, `--a.b=value` or a bare `--a.b` into overrides. Raises BadInput for anything else."""
    found: list[Override] = []
    rest = list(tokens)
    while rest:
        token = rest.pop(0)
        if not token.startswith("--"):
            raise BadInput(f"unexpected argument {token!r}; keys of the job are given as --section.key value")
        flag, equals, value = token.partition("=")
        alone = not equals and (not rest or rest[0].startswith("--"))
        found.append(Override(flag, None if alone else value if equals else rest.pop(0)))
    return found


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error


def _algorithm(data: Mapping[str, Any], given: Sequence[Override], path: Path) -> str:
    section = data.get("trainer", {})
    if not isinstance(section, dict):
        raise BadInput(f"{path}: trainer: must be a table, [trainer]")
    kind, where = section.get("kind", "crr"), f"{path}: trainer.kind"
    for override in given:
        if override.path == ("trainer", "kind"):
            kind, where = override.value or "", override.flag
    if kind not in kinds():
        near = get_close_matches(str(kind), kinds(), 1)
        guess = f"did you mean {near[0]}? " if near else ""
        raise BadInput(f"{where}: no algorithm {kind!r}; {guess}there are: {', '.join(kinds())}")
    return str(kind)


def _set(data: dict[str, Any], override: Override, kind: str) -> None:
    *sections, key = override.path
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise BadInput(f"{override.flag}: {section} is not a section; {nearest_key(override.path, kind)}")
    annotation = _annotation(override.path, kind)
    if override.value is None and annotation is not bool:
        raise BadInput(f"{override.flag}: {_alone(override, kind)}")
    data[key] = True if override.value is None else _typed(override.value, annotation)


def _alone(override: Override, kind: str) -> str:
    """What is wrong with a flag without a value: it lacks one, or it was meant to be another flag."""
    if ".".join(override.path) in known_keys(kind):
        return "needs a value"
    near = get_close_matches(override.flag, FLAGS, 1, 0.75)
    return f"unknown key; {f'did you mean {near[0]}?' if near else nearest_key(override.path, kind)}"


def _typed(text: str, annotation: Any) -> Any:
    """`text` as the field wants it: the plain string where that validates, else a TOML value, else a list by commas."""
    if annotation is not Any:
        try:
            return TypeAdapter(annotation).validate_python(text)
        except ValidationError:
            pass
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text.split(",") if get_origin(annotation) is tuple else text


def _annotation(path: Sequence[str], kind: str) -> Any:
    model: Any = JobConfig
    for name in path:
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or name not in model.model_fields:
            return Any
        model = _section(model.model_fields[name].annotation, kind)
    return model


def _section(annotation: Any, kind: str) -> Any:
    """The model behind an annotation: the algorithm's own for the trainer, the member of an optional one."""
    if get_origin(annotation) in (Union, UnionType):
        models = [a for a in get_args(annotation) if isinstance(a, type) and issubclass(a, BaseModel)]
        annotation = models[0] if models else annotation
    return trainer_config_class(kind) if annotation is TrainerConfig else annotation


def known_keys(kind: str, model: type[BaseModel] = JobConfig, prefix: str = "") -> dict[str, str]:
    """All dotted keys of a job for algorithm `kind`, with their help texts."""
    keys: dict[str, str] = {}
    for name, info in model.model_fields.items():
        inner = _section(info.annotation, kind)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys |= known_keys(kind, inner, f"{prefix}{name}.")
        else:
            keys[prefix + name] = info.description or ""
    return keys


def nearest_key(path: Sequence[str], kind: str) -> str:
    """A hint that names the nearest right key: by the whole dotted name, else by its last part."""
    keys, wrong = list(known_keys(kind)), ".".join(path)
    if others := [other for other in kinds() if wrong in known_keys(other)]:
        return f"{kind} has no such key; it is one of {', '.join(others)}"
    near = [k for k in keys if k.rsplit(".", 1)[-1] == path[-1]] or get_close_matches(wrong, keys, 1, 0.75)
    if near := near or get_close_matches(wrong, keys, 1, 0.5):
        return f"did you mean {near[0]}?"
    section = [k for k in keys if k.startswith(f"{path[0]}.")]
    return f"there are: {', '.join(section or keys)}"


def _validated(
    data: dict[str, Any], trainer: type[TrainerConfig], file: str, flags: Mapping[tuple[str, ...], str]
) -> JobConfig:
    kind = data["trainer"]["kind"]
    try:
        section = trainer.model_validate(data["trainer"])
    except ValidationError as error:
        raise BadInput(_message(error, ("trainer",), file, flags, kind)) from error
    try:
        return JobConfig.model_validate({**data, "trainer": section})
    except ValidationError as error:
        raise BadInput(_message(error, (), file, flags, kind)) from error


def _message(
    error: ValidationError,
    prefix: tuple[str, ...],
    file: str,
    flags: Mapping[tuple[str, ...], str],
    kind: str,
) -> str:
    """The first error as one line: where, which key, what value, what is allowed."""
    first = error.errors()[0]
    path = prefix + tuple(str(part) for part in first["loc"])
    of_section = first["type"] == "value_error" and isinstance(first["input"], dict)  # its message names the keys
    named = (flag for key, flag in flags.items() if path[: len(key)] == key[: len(path)] and not of_section)
    where = next(named, f"{file}: {'.'.join(path)}" if path else file)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{where}: unknown key; {nearest_key(path, kind)}{more}"
    said = first["msg"].removeprefix("Value error, ")
    got = "" if of_section else f", got {first['input']!r}"
    return f"{where}: {said[:1].lower()}{said[1:]}{got}{more}"
