"""What a log must satisfy, checked where its rows still have their numbers: every fault names file, row and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogArrays

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Place:
    """Where a block of rows lies in a file."""

    file: str
    first: int = 1
    """Number of the block's first row; rows of tables are counted from 1 after the header."""
    unit: str = "row"
    header: int = 0
    """Lines of a text file before its first row, blank ones not counted; 0: it has no lines."""

    def after(self, rows: int) -> Place:
        """The place `rows` further on."""
        return replace(self, first=self.first + rows)

    def fault(self, row: int, column: str, found: object, expected: str) -> BadInput:
        """To be raised: row `row` of the block (from 0) is wrong."""
        number = self.first + row
        line = f" (line {number + self.header})" if self.header else ""
        return BadInput(
            f"{self.file}: {self.unit} {number}{line}, column {column!r}: found {found}, expected {expected}"
        )


def check_finite(values: np.ndarray, columns: Sequence[str], place: Place, missing: str = "a number") -> None:
    """Every value (rows, columns) is a number that fits float32. Raises BadInput at the first that is not.

    `missing` says what is expected in place of NaN.
    """
    wrong = ~(np.abs(values) <= LARGEST)  # also true of NaN
    if wrong.any():
        row, column = (int(k) for k in np.argwhere(wrong)[0])
        value = float(values[row, column])
        found = "nothing (an empty cell or NaN)" if np.isnan(value) else f"{value:g}"
        expected = missing if np.isnan(value) else "a finite number"
        raise place.fault(row, columns[column], found, expected)


def check_infinite(values: np.ndarray, columns: Sequence[str], place: Place) -> None:
    """As `check_finite`, but NaN passes: it stands for a missing value."""
    check_finite(np.where(np.isnan(values), 0.0, values), columns, place)


def check_discrete(
    numbers: np.ndarray, sizes: Sequence[int], columns: Sequence[str], place: Place, what: str = "an action"
) -> None:
    """Every number (rows, n) of an action, or `what` it is, is whole and one of those declared. Raises BadInput."""
    check_finite(numbers, columns, place, f"the number of {what}")
    wrong = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= np.asarray(sizes))
    if wrong.any():
        row, column = (int(k) for k in np.argwhere(wrong)[0])
        expected = f"{what} 0 ... {sizes[column] - 1} ({sizes[column]} are declared)"
        raise place.fault(row, columns[column], f"{numbers[row, column]:g}", expected)


def check_continuous(actions: np.ndarray, spec: ActionSpec, columns: Sequence[str], place: Place) -> None:
    """Every action (rows, n * dimensions) lies within the declared bounds. Raises BadInput."""
    check_finite(actions, columns, place, "a dose")
    low, high = (np.tile(np.asarray(bounds, np.float32), spec.agents) for bounds in (spec.low, spec.high))
    kept = actions.astype(np.float32)  # as the log holds it: 0.1 in a file is then within a bound of 0.1
    wrong = (kept < low) | (kept > high)
    if wrong.any():
        row, column = (int(k) for k in np.argwhere(wrong)[0])
        expected = f"a value within the declared bounds [{low[column]:g}, {high[column]:g}]"
        raise place.fault(row, columns[column], f"{actions[row, column]:g}", expected)


def check_durations(dt: np.ndarray, column: str, place: Place) -> None:
    """Every time (rows,) to the next row is a number above 0. Raises BadInput."""
    check_finite(dt[:, None], [column], place)
    if (wrong := dt <= 0).any():
        row = int(np.argmax(wrong))
        raise place.fault(row, column, f"{dt[row]:g}", "a time above 0")


def check_probabilities(behaviour: np.ndarray, discrete: bool, column: str, place: Place) -> None:
    """(rows,) probabilities of logged actions, or densities of continuous ones; NaN: unknown. Raises BadInput.

    A log-probability that stands where a probability should is below 0, so it is found here.
    """
    most = 1.0 + 1e-6 if discrete else np.inf
    with np.errstate(over="ignore"):
        kept = behaviour.astype(np.float32)  # as the log holds it: what is 0 there would divide by 0
    wrong = ~np.isnan(behaviour) & ~((kept > 0) & (kept <= most) & (kept < np.inf))
    if wrong.any():
        row = int(np.argmax(wrong))
        what = "a probability above 0, at most 1 (float32)" if discrete else "a density above 0 (float32)"
        hint = "; log-probabilities are declared as behaviour_log_probability" if behaviour[row] < 0 else ""
        raise place.fault(row, column, f"{behaviour[row]:g}", f"{what}, of the action that was taken{hint}")


def check_allowed(allowed: np.ndarray, actions: np.ndarray, columns: Sequence[str], place: Place) -> None:
    """The logged actions (rows, n) are among those allowed (rows, n, width). Raises BadInput."""
    taken = np.take_along_axis(allowed, actions.astype(np.int64)[:, :, None], -1)[:, :, 0]
    if not taken.all():
        row, column = (int(k) for k in np.argwhere(~taken)[0])
        raise place.fault(row, columns[column], f"action {actions[row, column]:g}", "one that is allowed in this row")


def check_learnable(log: LogArrays, transitions: np.ndarray, name: str) -> None:
    """There is something to learn in these transitions. Raises BadInput.

    Trainers run happily on nothing, on one action and on one reward; what they return then means nothing.
    """
    if len(transitions) == 0:
        raise BadInput(f"{name}: no transitions to learn from; give more episodes, or another split")
    taken = log.actions[transitions]
    if (taken == taken[:1]).all():
        raise BadInput(
            f"{name}: all {len(transitions)} logged actions are equal ({taken[0].tolist()}): "
            "nothing says what another action leads to; collect a log with more than one"
        )
    rewards = log.rewards[transitions]
    if (rewards == rewards[:1]).all() and not _length_matters(log, transitions):
        raise BadInput(
            f"{name}: all {len(transitions)} rewards are {float(rewards[0]):g}: every policy is worth the same; "
            "check which column is declared as the reward"
        )


def _length_matters(log: LogArrays, transitions: np.ndarray) -> bool:
    """Whether a constant reward still tells policies apart: it is not 0, and episodes end at different times."""
    ends = transitions[log.terminated[transitions]]
    lengths = np.diff(log.starts)[np.searchsorted(log.starts, ends, side="right") - 1]
    return bool(log.rewards[transitions[0]]) and len(np.unique(lengths)) > 1
