"""D4RL: one HDF5 file of flat arrays, `observations`, `actions`, `rewards`, `terminals`, `timeouts`.

Optional: `next_observations`, `infos/action_log_probs` (log-probabilities of who acted), and, as written here,
`infos/patient` and `infos/dt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.formats import arrays
from refork.replay.formats.following import check_following
from refork.replay.formats.reading import Opened
from refork.replay.formats.rows import Rows
from refork.replay.formats.schema import Schema
from refork.replay.transitions import Transitions
from refork.replay.validation import Place

BLOCK = 1 << 17
SUFFIXES = (".hdf5", ".h5")
NEEDED = ("observations", "actions", "rewards", "terminals")
LOG_PROBS, PATIENT, DT = "infos/action_log_probs", "infos/patient", "infos/dt"
OPTIONAL = ("timeouts", "next_observations", LOG_PROBS, PATIENT, DT)
WIDE = ("observations", "actions", "next_observations")
"""May have more than one value a row."""


def h5py() -> Any:
    """The package. Raises BadInput when it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise BadInput("HDF5 files need the package h5py: pip install 'refork[clinical]'") from error
    return h5py


def fits(path: Path) -> bool:
    """By its name."""
    return path.is_file() and path.suffix in SUFFIXES


def open_file(path: Path, schema: Schema | None) -> Opened:
    """Raises BadInput when it is no HDF5 file, an array is missing, or lengths differ."""
    try:
        with h5py().File(path, "r") as file:
            shapes = {name: _shape(path, name, file[name]) for name in (*NEEDED, *OPTIONAL) if name in file}
            kept = file.attrs.get(arrays.KEY)
            there = ", ".join(file)
    except (OSError, RuntimeError) as error:
        raise BadInput(f"{path}: cannot be read as HDF5: {error}") from error
    for name in NEEDED:
        if name not in shapes:
            raise BadInput(f"{path}: array {name!r} is missing; the file has: {there}")
    count = shapes["rewards"][0]
    for name, shape in shapes.items():
        if shape[0] != count:
            raise BadInput(f"{path}: array {name!r} has {shape[0]} rows, expected {count} as rewards has")
    found = arrays.schema_for(path, schema, kept)
    features, actions = (int(np.prod(shapes[name][1:])) for name in ("observations", "actions"))
    names = arrays.array_names(found, features, actions)
    return Opened(path, found, names, _blocks(path, tuple(shapes), count), first=0)


def _shape(path: Path, name: str, array: Any) -> tuple[int, ...]:
    """Raises BadInput when it is no array of numbers (of a patient: or texts), a row a step."""
    shape: tuple[int, ...] = getattr(array, "shape", ())  # a group has none
    if not shape or (name != PATIENT and array.dtype.kind not in "biuf"):
        found = f"{array.dtype} of shape {shape}" if hasattr(array, "dtype") else "a group"
        raise BadInput(f"{path}: {name!r} is {found}, expected an array of numbers, one row a step")
    if name not in WIDE and np.prod(shape[1:]) != 1:
        raise BadInput(f"{path}: array {name!r} has shape {shape}, expected one number a row")
    return shape


def _blocks(path: Path, there: tuple[str, ...], count: int) -> Iterator[Rows]:
    """Raises BadInput where a next observation is not the next row's."""
    episode, step, last = 0, 0, None
    with h5py().File(path, "r") as file:
        for first in range(0, count, BLOCK):
            read = {name: file[name][first : first + BLOCK] for name in there}
            rows, ends = _rows(read, episode, step, final=first + BLOCK >= count)
            check_following(rows, last, Place(str(path), first), "next_observations")
            last = rows.part(slice(-1, None))
            episode = int(rows.episode[-1]) + int(ends[-1])
            step = 0 if ends[-1] else int(rows.time[-1]) + 1
            yield rows


def _rows(read: dict[str, np.ndarray], episode: int, step: int, final: bool) -> tuple[Rows, np.ndarray]:
    """And (n,) bool: rows that end an episode; the file's last one is cut there unless it terminates."""
    terminals = np.asarray(read["terminals"], np.float64).reshape(-1)
    timeouts = np.asarray(read.get("timeouts", np.zeros(len(terminals))), np.float64).reshape(-1).copy()
    if final and terminals[-1] != 1:
        timeouts[-1] = 1
    ends = (terminals == 1) | (timeouts == 1)
    labels = episode + np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int64)
    begins = np.maximum.accumulate(np.where(np.concatenate([[False], ends[:-1]]), np.arange(len(ends)), 0))
    time = np.arange(len(ends)) - begins + np.where(labels == episode, step, 0)
    patient = read.get(PATIENT, labels).reshape(-1)
    return Rows(
        labels,
        np.array([p.decode() for p in patient], object) if patient.dtype == object else patient,
        time.astype(np.float64),
        arrays.columns_of(read["observations"]),
        arrays.columns_of(read["actions"]),
        np.asarray(read["rewards"], np.float64).reshape(-1),
        terminals,
        timeouts,
        np.exp(read[LOG_PROBS].astype(np.float64).reshape(-1)) if LOG_PROBS in read else np.full(len(ends), np.nan),
        following=arrays.columns_of(read["next_observations"]) if "next_observations" in read else None,
        dt=np.asarray(read[DT], np.float64).reshape(-1) if DT in read else None,
    ), ends


def write(log: Transitions, path: Path) -> list[Path]:
    """Raises BadInput when the format cannot hold the log."""
    arrays.check_holdable(log, path, "d4rl")
    with h5py().File(path, "w") as file:
        file.attrs[arrays.KEY] = arrays.kept_for(log.spec)
        made: dict[str, Any] = {}
        for first in range(0, len(log), BLOCK):
            steps = np.arange(first, min(first + BLOCK, len(log)))
            for name, values in _columns(log, steps).items():
                if name not in made:
                    shape = (len(log), *values.shape[1:])
                    kind = h5py().string_dtype() if values.dtype == object else values.dtype
                    made[name] = file.create_dataset(name, shape, kind)
                made[name][first : first + len(steps)] = values
    return [path]


def _columns(log: Transitions, steps: np.ndarray) -> dict[str, np.ndarray]:
    rows = log.rows(steps)
    patients = log.patients[log.episode[steps]]
    return {
        "observations": log.observations[rows],
        "next_observations": log.observations[rows + 1],
        "actions": arrays.flat_actions(log.actions[steps]),
        "rewards": log.rewards[steps],
        "terminals": log.terminated[steps],
        "timeouts": log.truncated[steps],
        LOG_PROBS: np.log(log.behaviour[steps].astype(np.float64)),
        PATIENT: np.asarray(log.patient_names, object)[patients] if log.patient_names else patients,
        DT: log.dt[steps],
    }
