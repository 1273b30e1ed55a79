"""Where episodes begin, whose they are, when their steps were and how they ended, checked row by row."""

from __future__ import annotations

import numpy as np
from refork.replay.formats.rows import Names, Notes, Rows, plain
from refork.replay.formats.schema import Schema
from refork.replay.validation import Place, check_durations, check_finite


class EpisodeRows:
    """Checks the rows of whole episodes; it remembers which episodes the file had."""

    def __init__(self, schema: Schema, names: Names, notes: Notes) -> None:
        self._schema, self._names, self._notes = schema, names, notes
        self._seen = np.zeros(0, np.int64)

    def check(self, rows: Rows, starts: np.ndarray, place: Place) -> None:
        """Raises BadInput: an id is missing, an episode comes back, a patient or the order of steps changes in one."""
        self._check_labels(rows, starts, place)
        self._check_patients(rows, starts, place)
        self._check_time(rows, starts, place)

    def _check_labels(self, rows: Rows, starts: np.ndarray, place: Place) -> None:
        for column, labels in ((self._names.episode, rows.episode), (self._names.patient, rows.patient)):
            for row in np.flatnonzero(_empty(labels)):
                raise place.fault(int(row), column, "nothing", "an id")
        self._check_together(rows.episode, starts[:-1], place)

    def _check_together(self, labels: np.ndarray, begins: np.ndarray, place: Place) -> None:
        # hashes in place of labels: 8 bytes an episode, and a false alarm is less likely than a broken disk
        keys = np.fromiter((hash(str(labels[row])) for row in begins), np.int64, len(begins))
        places = np.searchsorted(self._seen, keys)
        before = np.append(self._seen, 0)[places] == keys
        before &= places < len(self._seen)
        before[np.setdiff1d(np.arange(len(keys)), np.unique(keys, return_index=True)[1])] = True
        if before.any():
            row = int(begins[np.argmax(before)])
            expected = "rows of an episode together; sort the file by episode and step"
            raise place.fault(row, self._names.episode, f"{plain(labels[row])!r} again after other episodes", expected)
        order = np.argsort(keys)
        self._seen = np.insert(self._seen, places[order], keys[order])

    def _check_patients(self, rows: Rows, starts: np.ndarray, place: Place) -> None:
        owner = np.repeat(rows.patient[starts[:-1]], np.diff(starts))
        for row in np.flatnonzero(rows.patient != owner):
            expected = f"{plain(owner[row])!r} as in the other rows of this episode"
            raise place.fault(int(row), self._names.patient, repr(plain(rows.patient[row])), expected)

    def _check_time(self, rows: Rows, starts: np.ndarray, place: Place) -> None:
        column, time, columns = self._names.time, rows.time, self._schema.columns
        check_finite(time[:, None], [column], place)
        if columns is not None and columns.step and (wrong := time != np.floor(time)).any():
            row = int(np.argmax(wrong))
            raise place.fault(row, column, f"{time[row]:g}", "a whole number; a time is declared as columns.time")
        rising = np.concatenate([[True], np.diff(time) > 0])
        rising[starts[:-1]] = True
        if not rising.all():
            row = int(np.argmin(rising))
            found = f"{time[row]:g} after {time[row - 1]:g} in episode {plain(rows.episode[row])!r}"
            raise place.fault(row, column, found, "a rising value within an episode; sort the file")

    def dt(self, rows: Rows, starts: np.ndarray, place: Place) -> np.ndarray:
        """(n,) float32: time to the next row; after the last one, a unit."""
        if rows.dt is None:
            dt = np.append(np.diff(rows.time), 0.0) / self._schema.time.per_unit
            dt[starts[1:] - 1] = 1.0
            return dt.astype(np.float32)
        check_durations(rows.dt, "dt", place)
        return rows.dt.astype(np.float32)

    def terminated(self, rows: Rows, starts: np.ndarray, decided: np.ndarray, place: Place) -> np.ndarray:
        """(E,) bool: episodes that truly ended; the others were cut. Raises BadInput where flags stand wrong."""
        count, end = len(starts) - 1, self._schema.episode.end
        if end != "column":
            return np.full(count, end == "terminated")
        last = np.maximum(starts[1:] - 1 - ~decided[starts[1:] - 1], starts[:-1])
        terminated = _flags(rows.terminated, last, decided, self._names.terminated, place)
        truncated = _flags(rows.truncated, last, decided, self._names.truncated, place)
        self._notes.both_ends += int((terminated & truncated).sum())
        neither, columns = ~(terminated | truncated), self._schema.columns
        if columns is None:  # what followed is in the file, so the record was cut there
            self._notes.unmarked_ends += int(neither.sum())
        elif columns.truncated and neither.any():
            expected = f"1 here or in {self._names.truncated!r}: it is the last decision of its episode"
            raise place.fault(int(last[np.argmax(neither)]), self._names.terminated, "0", expected)
        return terminated


def _flags(values: np.ndarray, last: np.ndarray, decided: np.ndarray, column: str, place: Place) -> np.ndarray:
    """(n,) -> (E,): set in the last decision of an episode, and nowhere else."""
    given = np.where(decided, values, 0.0)
    if (wrong := ~np.isin(given, (0.0, 1.0))).any():
        row = int(np.argmax(wrong))
        raise place.fault(row, column, "nothing" if np.isnan(values[row]) else f"{values[row]:g}", "0 or 1")
    early = given == 1
    early[last] = False
    if early.any():
        expected = "0: the episode goes on in the next row; end it there, or give the rest another episode id"
        raise place.fault(int(np.argmax(early)), column, "1", expected)
    return given[last] == 1


def _empty(labels: np.ndarray) -> np.ndarray:
    if labels.dtype == object:
        return np.array([label is None or label == "" for label in labels])
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), bool)
