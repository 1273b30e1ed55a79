"""Missing observations: refused, or filled as the schema declares; never silently."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import numpy as np
from refork.envs.forkable import BadInput
from refork.replay.formats.schema import Missing, names_column, nearest
from refork.replay.validation import Place, check_finite


class MissingValues:
    """Fills the observation columns of a file."""

    def __init__(self, declared: Missing, columns: Sequence[str]) -> None:
        self._declared, self._columns = declared, columns
        self._first = np.full(len(columns), np.nan)
        for pattern, value in declared.first.items():
            found = [k for k, name in enumerate(columns) if names_column(pattern, name)]
            if not found:
                raise BadInput(f"schema: missing.first: no observation column {pattern!r}; {nearest(pattern, columns)}")
            self._first[found] = value

    def fill(
        self, values: np.ndarray, starts: np.ndarray, place: Place, counts: MutableMapping[str, int]
    ) -> np.ndarray:
        """(n, F) with NaN -> (n, F), or (n, 2 F) with masks, float32; adds to `counts` by column.

        Raises BadInput where the policy leaves a value open.
        """
        missing = self._counted(values, counts)
        if self._declared.policy == "refuse":
            check_finite(values, self._columns, place, 'a value (or missing.policy = "forward_fill" in the schema)')
            return values.astype(np.float32)
        filled = self._forward(values, missing, starts)
        expected = "a value: none was seen in this episode yet; declare one in missing.first"
        check_finite(filled, self._columns, place, expected)
        return self._masked(filled, missing)

    def after(
        self, values: np.ndarray, before: np.ndarray, place: Place, counts: MutableMapping[str, int]
    ) -> np.ndarray:
        """(k, F) rows that follow the filled rows `before` (k, F or 2 F) -> as `fill`."""
        missing = self._counted(values, counts)
        if self._declared.policy == "refuse":
            check_finite(values, [f"next {name}" for name in self._columns], place)
            return values.astype(np.float32)
        return self._masked(np.where(missing, before[:, : values.shape[1]], values), missing)

    def _counted(self, values: np.ndarray, counts: MutableMapping[str, int]) -> np.ndarray:
        """(n, F) bool: what is missing."""
        missing = np.isnan(values)
        for column in np.flatnonzero(missing.any(0)):
            name = self._columns[int(column)]
            counts[name] = counts.get(name, 0) + int(missing[:, column].sum())
        return missing

    def _masked(self, filled: np.ndarray, missing: np.ndarray) -> np.ndarray:
        seen = filled.astype(np.float32)
        if self._declared.policy == "forward_fill":
            return seen
        return np.concatenate([seen, ~missing], 1, dtype=np.float32)

    def _forward(self, values: np.ndarray, missing: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The last value seen in the episode, else the declared first one."""
        rows = np.arange(len(values))[:, None]
        begins = np.repeat(starts[:-1], np.diff(starts))[:, None]
        latest = np.maximum.accumulate(np.where(missing, -1, rows), 0)
        filled = np.take_along_axis(values, np.maximum(latest, 0), 0)
        return np.where(latest >= begins, filled, self._first)
