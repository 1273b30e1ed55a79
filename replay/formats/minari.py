"""Minari (0.5): a folder with `metadata.json` and `main_data.hdf5`; spaces declare what actions there are.

`infos/behaviour_probability` and `infos/dt`, and the episode attribute `patient`, are read where they are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.formats import arrays
from refork.replay.formats.reading import Opened
from refork.replay.formats.rows import Rows
from refork.replay.formats.schema import Schema
from refork.replay.transitions import Transitions

PROBABILITY, DT, PATIENT = "behaviour_probability", "dt", "patient"


def storages() -> Any:
    """Minari's storage class. Raises BadInput when the package is not installed."""
    try:
        from minari.dataset.minari_storage import MinariStorage
    except ImportError as error:
        raise BadInput("Minari data sets need the package minari: pip install 'refork[clinical]'") from error
    return MinariStorage


def _data_folder(path: Path) -> Path | None:
    return next((p for p in (path, path / "data") if (p / "metadata.json").is_file()), None)


def fits(path: Path) -> bool:
    """By the files in it."""
    return path.is_dir() and _data_folder(path) is not None


def open_folder(path: Path, schema: Schema | None) -> Opened:
    """Raises BadInput when it cannot be read, or its spaces are not those of a log."""
    folder = _data_folder(path)
    assert folder is not None
    try:
        storage = storages().read(folder)
        metadata = storage.metadata
    except Exception as error:  # whatever a broken file makes of the package
        raise BadInput(f"{path}: cannot be read as a Minari data set: {type(error).__name__}: {error}") from error
    if schema is None and arrays.KEY not in metadata:
        found = _of_spaces(path, storage.observation_space, storage.action_space, metadata)
    else:
        found = arrays.schema_for(path, schema, metadata.get(arrays.KEY))
    features, actions = _width(storage.observation_space), _width(storage.action_space)
    names = arrays.array_names(found, features, actions)
    return Opened(path, found, names, _episodes(path, storage), unit="step", by_episode=True)


def _width(space: Any) -> int:
    return int(np.prod(space.shape)) if space.shape else 1


def _of_spaces(path: Path, seen: Any, action: Any, metadata: dict[str, Any]) -> Schema:
    """What Gymnasium spaces declare."""
    kind, env = type(seen).__name__, str(metadata.get("dataset_id", path.name))
    observation: dict[str, Any] = {}
    if kind == "Discrete":
        observation = {"kind": "states", "size": int(seen.n)}
    elif kind != "Box" or len(seen.shape) != 1:
        raise BadInput(f"{path}: observations are {seen}; expected Discrete or a Box of one axis: flatten them first")
    return Schema.model_validate(
        {
            "observation": observation,
            "action": _action_of(path, action),
            "episode": {"end": "column"},
            "reward": {"text": f"as in the Minari data set {env}"},
        }
    )


def _action_of(path: Path, action: Any) -> dict[str, Any]:
    match type(action).__name__:
        case "Discrete":
            return {"kind": "discrete", "counts": [int(action.n)]}
        case "MultiDiscrete" if action.nvec.ndim == 1:
            return {"kind": "discrete", "counts": action.nvec.tolist()}
        case "Box" if len(action.shape) == 1:
            if not (np.isfinite(action.low).all() and np.isfinite(action.high).all()):
                raise BadInput(f"{path}: actions have no bounds ({action}); declare action.low and high by --schema")
            return {"kind": "continuous", "low": action.low.tolist(), "high": action.high.tolist()}
    raise BadInput(f"{path}: actions are {action}; expected Discrete, MultiDiscrete or a Box of one axis")


def _episodes(path: Path, storage: Any) -> Iterator[Rows]:
    start = np.asarray(getattr(storage.action_space, "start", 0))
    origin = np.asarray(getattr(storage.observation_space, "start", 0))
    numbers = range(storage.total_episodes)
    try:
        for episode, about in zip(storage.get_episodes(numbers), storage.get_episode_metadata(numbers), strict=True):
            yield _rows(path, episode, about, start, origin)
    except (OSError, KeyError, RuntimeError) as error:
        raise BadInput(f"{path}: cannot be read as a Minari data set: {error}") from error


def _rows(path: Path, episode: dict[str, Any], about: dict[str, Any], start: np.ndarray, origin: np.ndarray) -> Rows:
    number, count = int(episode["id"]), len(episode["rewards"])
    seen = arrays.columns_of(np.asarray(episode["observations"])) - origin
    taken, infos = arrays.columns_of(np.asarray(episode["actions"])) - start, episode.get("infos") or {}
    if len(seen) != count + 1 or len(taken) != count:
        found = f"{len(seen)} observations, {len(taken)} actions"
        raise BadInput(f"{path}: episode {number}: {found} for {count} rewards, expected {count + 1} and {count}")
    patient = about.get(PATIENT, number)
    return Rows(
        np.full(count, number),
        np.full(count, patient, object if isinstance(patient, str) else None),
        np.arange(count, dtype=np.float64),
        seen[:-1],
        taken,
        np.asarray(episode["rewards"], np.float64),
        np.asarray(episode["terminations"], np.float64),
        np.asarray(episode["truncations"], np.float64),
        np.asarray(infos.get(PROBABILITY, np.full(count, np.nan)), np.float64)[:count],
        following=seen[1:],
        dt=np.asarray(infos[DT], np.float64)[:count] if DT in infos else None,
    )


def write(log: Transitions, path: Path) -> list[Path]:
    """As `path`/data, what `minari.MinariDataset` opens. Raises BadInput when the format cannot hold the log."""
    arrays.check_holdable(log, path, "minari")
    make = storages()
    (path / "data").mkdir(parents=True)
    seen, action = _spaces(log)
    storage = make.new((path / "data").absolute(), seen, action)  # it joins a relative path to itself
    for first in range(0, log.episodes, 1024):
        numbers = range(first, min(first + 1024, log.episodes))
        storage.update_episodes(_buffer(log, e) for e in numbers)
        storage.update_episode_metadata(({PATIENT: _patient(log, e)} for e in numbers), numbers)
    about = {"dataset_id": f"{path.name}-v0", "minari_version": version("minari")}
    storage.update_metadata({arrays.KEY: arrays.kept_for(log.spec), **about})
    return [path]


def _spaces(log: Transitions) -> tuple[Any, Any]:
    from gymnasium import spaces

    seen, action = log.spec.observation, log.spec.action
    low, high = np.tile(action.low, action.agents), np.tile(action.high, action.agents)
    return (
        spaces.Discrete(seen.size) if seen.kind == "states" else spaces.Box(-np.inf, np.inf, (seen.size,), np.float32),
        spaces.Box(low.astype(np.float32), high.astype(np.float32))
        if action.kind == "continuous"
        else spaces.Discrete(action.sizes[0])
        if action.agents == 1
        else spaces.MultiDiscrete(list(action.sizes)),
    )


def _patient(log: Transitions, episode: int) -> Any:
    number = int(log.patients[episode])
    return log.patient_names[number] if log.patient_names else number


def _buffer(log: Transitions, episode: int) -> Any:
    from minari.data_collector.episode_buffer import EpisodeBuffer

    steps = slice(int(log.starts[episode]), int(log.starts[episode + 1]))
    rows = slice(steps.start + episode, steps.stop + episode + 1)
    infos = {PROBABILITY: np.append(log.behaviour[steps], np.float32(np.nan)), DT: np.append(log.dt[steps], 0)}
    return EpisodeBuffer(
        id=episode,
        observations=log.observations[rows],
        actions=arrays.flat_actions(log.actions[steps]),
        rewards=log.rewards[steps],
        terminations=log.terminated[steps],
        truncations=log.truncated[steps],
        infos=infos,
    )
