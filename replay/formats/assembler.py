"""Rows of a file become a log: the one way in for every format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from refork.envs.log_spec import LogArrays, LogSpec
from refork.replay import validation as check
from refork.replay.formats.decision_rows import DecisionRows
from refork.replay.formats.episode_rows import EpisodeRows
from refork.replay.formats.missing import MissingValues
from refork.replay.formats.rows import Names, Notes, Rows, episode_starts, plain
from refork.replay.formats.schema import Schema
from refork.replay.validation import Place


class Assembler:
    """Rows of whole episodes -> pieces of a log, checked; it remembers episodes and patients over the whole file."""

    def __init__(self, schema: Schema, names: Names, place: Place) -> None:
        self.spec: LogSpec = schema.spec(names.observations, names.actions, place.file)
        self.notes = Notes()
        self._schema, self._names, self._place = schema, names, place
        self._missing = MissingValues(schema.missing, names.observations)
        self._episodes = EpisodeRows(schema, names, self.notes)
        self._decisions = DecisionRows(schema, names, self.spec.action)
        self._patients: dict[object, int] = {}
        if schema.missing.policy == "mask" and self.spec.observation.kind == "vector":
            seen = self.spec.observation
            masks = tuple(f"m:{name.removeprefix('o:')}" for name in seen.names)
            self.spec = replace(self.spec, observation=replace(seen, size=2 * seen.size, names=seen.names + masks))

    @property
    def patient_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self._patients)

    def piece(self, rows: Rows, place: Place | None = None) -> LogArrays | None:
        """None: no decision was left of these rows. Raises BadInput at the first fault.

        `place`: where they lie, if not after the rows before.
        """
        place = self._place = place or self._place
        starts = episode_starts(rows.episode)
        self._episodes.check(rows, starts, place)
        seen = self._observations(rows, starts)
        decided = self._decisions.decided(rows, starts, place)
        self._decisions.check(rows, decided, place)
        terminated = self._episodes.terminated(rows, starts, decided, place)
        piece = self._assemble(rows, starts, seen, terminated)
        self._place = place.after(len(rows))
        self.notes.rows += len(rows)
        return piece

    def _observations(self, rows: Rows, starts: np.ndarray) -> np.ndarray:
        """(n, F) -> (n, size), float32; states: (n,), int32."""
        names, spec = self._names.observations, self.spec.observation
        check.check_infinite(rows.observations, names, self._place)
        if spec.kind == "states":
            check.check_discrete(rows.observations, [spec.size], names, self._place, "a state")
            return rows.observations[:, 0].astype(np.int32)
        return self._missing.fill(rows.observations, starts, self._place, self.notes.missing)

    def _assemble(self, rows: Rows, starts: np.ndarray, seen: np.ndarray, terminated: np.ndarray) -> LogArrays | None:
        """Which rows are decisions, and what follows the last decision of each episode."""
        last = starts[1:] - 1
        # a row after the last: what followed it where the file says so; after a true end anything, as it is worth 0
        extra = (terminated | (rows.following is not None)) & (self._schema.episode.last_row == "decision")
        lengths = np.diff(starts) - 1 + extra
        kept = lengths > 0
        self._note_dropped(rows, last, lengths, extra)
        if not kept.any():
            return None
        decisions = np.repeat(kept, np.diff(starts))
        decisions[last[~extra]] = False
        added, chosen = last[extra & kept], np.flatnonzero(np.repeat(kept, np.diff(starts)))
        order = np.argsort(np.concatenate([chosen, added + 0.5]), kind="stable")
        shown = np.concatenate([seen[chosen], self._following(rows, seen, added)])[order]
        final = _marked(len(rows), (starts[:-1] + lengths - 1)[kept])[decisions]  # the last decisions of episodes
        ended = np.repeat(terminated[kept], lengths[kept])
        allowed = None if rows.allowed is None else self._decisions.allowed(rows.allowed)
        return LogArrays(
            self.spec,
            observations=shown,
            actions=self._decisions.actions(rows.actions[decisions]),
            rewards=rows.reward[decisions].astype(np.float32),
            terminated=final & ended,
            truncated=final & ~ended,
            starts=np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64),
            patients=self._numbers(rows.patient[starts[:-1][kept]]),
            behaviour=rows.behaviour[decisions].astype(np.float32),
            dt=self._episodes.dt(rows, starts, self._place)[decisions],
            allowed=None if allowed is None else np.concatenate([allowed[chosen], allowed[added]])[order],
        )

    def _note_dropped(self, rows: Rows, last: np.ndarray, lengths: np.ndarray, extra: np.ndarray) -> None:
        self.notes.dropped_episodes += int((lengths == 0).sum())
        if self._schema.episode.last_row == "decision":
            self.notes.dropped_decisions += int((~extra).sum())
            self.notes.dropped_rewards += int((rows.reward[last[~extra]] != 0).sum())

    def _following(self, rows: Rows, seen: np.ndarray, added: np.ndarray) -> np.ndarray:
        """(k, ...): what these rows led to, in the form of `seen`."""
        if rows.following is None:
            return seen[added]
        after, place = rows.following[added], self._place
        check.check_infinite(after, self._names.observations, place)
        if seen.ndim == 1:
            check.check_discrete(after, [self.spec.observation.size], self._names.observations, place, "a state")
            return after[:, 0].astype(np.int32)
        return self._missing.after(after, seen[added], place, self.notes.missing)

    def _numbers(self, patients: np.ndarray) -> np.ndarray:
        return np.array([self._patients.setdefault(plain(p), len(self._patients)) for p in patients], np.int64)


def _marked(count: int, rows: np.ndarray) -> np.ndarray:
    found = np.zeros(count, bool)
    found[rows] = True
    return found
