"""What was decided in each row: actions, rewards, behaviour, checked row by row."""

from __future__ import annotations

import numpy as np
from refork.envs.log_spec import ActionSpec
from refork.replay import validation as check
from refork.replay.formats.rows import Names, Rows
from refork.replay.formats.schema import Schema
from refork.replay.validation import Place


class DecisionRows:
    """Checks the decisions of a file and brings its action columns into the form of a log."""

    def __init__(self, schema: Schema, names: Names, spec: ActionSpec) -> None:
        self._schema, self._names, self._spec = schema, names, spec

    def decided(self, rows: Rows, starts: np.ndarray, place: Place) -> np.ndarray:
        """(n,) bool: rows that hold a decision."""
        decided = np.ones(len(rows), bool)
        if self._schema.episode.last_row == "decision":
            return decided
        last = starts[1:] - 1
        decided[last] = False
        values = np.column_stack([rows.actions, rows.reward])[last]
        if (filled := ~np.isnan(values)).any():
            row, column = (int(k) for k in np.argwhere(filled)[0])
            expected = "an empty cell: the schema says that an episode's last row holds no decision"
            name = [*self._names.actions, self._names.reward][column]
            raise place.fault(int(last[row]), name, f"{values[row, column]:g}", expected)
        return decided

    def check(self, rows: Rows, decided: np.ndarray, place: Place) -> None:
        """Raises BadInput at the first decision that is wrong; rows without one pass."""
        names, discrete = self._names, self._spec.kind == "discrete"
        actions = np.where(decided[:, None], rows.actions, self._harmless(rows.actions.shape[1]))
        if discrete:
            check.check_discrete(actions, self._schema.action.counts, names.actions, place)
        else:
            check.check_continuous(actions, self._spec, names.actions, place)
        reward = np.where(decided, rows.reward, 0.0)
        check.check_finite(reward[:, None], [names.reward], place, "a reward (0 where there is none)")
        check.check_probabilities(np.where(decided, rows.behaviour, np.nan), discrete, names.behaviour, place)
        if rows.allowed is not None:
            allowed = self.allowed(rows.allowed) | ~decided[:, None, None]
            columns = [" x ".join(names.actions)] if self._schema.action.joint else names.actions
            check.check_allowed(allowed, self._numbers(actions), columns, place)

    def _harmless(self, columns: int) -> np.ndarray:
        """(C,) actions that pass every check."""
        return np.zeros(columns) if self._spec.kind == "discrete" else np.tile(self._spec.low, self._spec.agents)

    def actions(self, columns: np.ndarray) -> np.ndarray:
        """(N, C) of the file -> (N, n), int64, or (N, n, dimensions), float32."""
        if self._spec.kind == "discrete":
            return self._numbers(columns)
        return columns.reshape(len(columns), self._spec.agents, self._spec.width).astype(np.float32)

    def _numbers(self, actions: np.ndarray) -> np.ndarray:
        """(n, C) numbers -> (n, agents) of discrete decision makers."""
        if not self._schema.action.joint:
            return actions.astype(np.int64)
        joint = np.ravel_multi_index(tuple(actions.astype(np.int64).T), tuple(self._schema.action.counts))
        return np.asarray(joint, np.int64)[:, None]

    def allowed(self, flat: np.ndarray) -> np.ndarray:
        """(n, sum of sizes) -> (n, agents, width)"""
        spec = self._spec
        found, begin = np.zeros((len(flat), spec.agents, spec.width), bool), 0
        for agent, size in enumerate(spec.sizes):
            found[:, agent, :size] = flat[:, begin : begin + size]
            begin += size
        return found
