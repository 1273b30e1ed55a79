"""Rows of a file, and how they become a log: the one way in for every format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from refork.envs.log_spec import ActionSpec, LogArrays, LogSpec
from refork.replay import validation as check
from refork.replay.formats.missing import MissingValues
from refork.replay.formats.schema import Schema
from refork.replay.validation import Place


@dataclass(frozen=True)
class Rows:
    """n rows of a file as it says them, NaN where it says nothing."""

    episode: np.ndarray
    """(n,) labels, any type."""
    patient: np.ndarray
    """(n,) labels."""
    time: np.ndarray
    """(n,) float64"""
    observations: np.ndarray
    """(n, F) float64 or float32"""
    actions: np.ndarray
    """(n, C) float64, columns of all decision makers side by side"""
    reward: np.ndarray
    """(n,) float64"""
    terminated: np.ndarray
    """(n,) float64: 0 or 1"""
    truncated: np.ndarray
    """(n,) float64: 0 or 1"""
    behaviour: np.ndarray
    """(n,) float64, probabilities"""
    allowed: np.ndarray | None = None
    """(n, sum of sizes) bool"""
    following: np.ndarray | None = None
    """(n, F): what each row led to, where the file says it."""
    dt: np.ndarray | None = None
    """(n,) float64: time to the next row, where the file says it."""

    def __len__(self) -> int:
        return len(self.episode)

    def part(self, chosen: slice) -> Rows:
        """Some of them."""
        values = {f.name: getattr(self, f.name) for f in fields(Rows)}
        taken: dict[str, Any] = {name: value if value is None else value[chosen] for name, value in values.items()}
        return Rows(**taken)


def concat(first: Rows, second: Rows) -> Rows:
    """One after the other."""
    pairs = {f.name: (getattr(first, f.name), getattr(second, f.name)) for f in fields(Rows)}
    joined: dict[str, Any] = {n: None if pair[0] is None else np.concatenate(pair) for n, pair in pairs.items()}
    return Rows(**joined)


def episode_starts(labels: np.ndarray) -> np.ndarray:
    """(n,) -> (E + 1,): first row of each run of equal labels, and n."""
    changes = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return np.concatenate([[0], changes, [len(labels)]]).astype(np.int64)


def whole_episodes(blocks: Iterable[Rows]) -> Iterator[Rows]:
    """The same rows in blocks that end where an episode ends."""
    held: Rows | None = None
    for block in blocks:
        rows = block if held is None else concat(held, block)
        last = int(episode_starts(rows.episode)[-2]) if len(rows) else 0
        held = rows.part(slice(last, None))
        if last:
            yield rows.part(slice(0, last))
    if held is not None and len(held):
        yield held


@dataclass(frozen=True)
class Names:
    """What the columns of a file are called in messages."""

    episode: str
    patient: str
    time: str
    observations: list[str]
    actions: list[str]
    reward: str
    terminated: str = "terminated"
    truncated: str = "truncated"
    behaviour: str = "behaviour"


@dataclass
class Notes:
    """What happened to the rows, for the data card."""

    rows: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    """Missing observations by column; how they were filled is the schema's."""
    both_ends: int = 0
    """Episodes both terminated and truncated: termination won."""
    unmarked_ends: int = 0
    """Episodes that stop without a mark, with what followed: they count as cut."""
    dropped_decisions: int = 0
    """Last decisions of cut episodes: no observation follows them."""
    dropped_rewards: int = 0
    """Of these, how many had a reward other than 0."""
    dropped_episodes: int = 0
    """Episodes with no decision left."""


class Assembler:
    """Rows of whole episodes -> pieces of a log, checked; it remembers episodes and patients over the whole file."""

    def __init__(self, schema: Schema, names: Names, place: Place) -> None:
        self.spec: LogSpec = schema.spec(names.observations, names.actions, place.file)
        self.notes = Notes()
        self._schema, self._names, self._place = schema, names, place
        self._missing = MissingValues(schema.missing, names.observations)
        if schema.missing.policy == "mask" and self.spec.observation.kind == "vector":
            seen = self.spec.observation
            masks = tuple(f"m:{name.removeprefix('o:')}" for name in seen.names)
            self.spec = replace(self.spec, observation=replace(seen, size=2 * seen.size, names=seen.names + masks))
        self._episodes: set[object] = set()
        self._patients: dict[object, int] = {}

    @property
    def patient_names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self._patients)

    def piece(self, rows: Rows, place: Place | None = None) -> LogArrays | None:
        """None: no decision was left of these rows. Raises BadInput at the first fault.

        `place`: where they lie, if not after the rows before.
        """
        self._place = place or self._place
        starts = episode_starts(rows.episode)
        self._check_episodes(rows, starts)
        self._check_time(rows, starts)
        seen = self._observations(rows, starts)
        decided = self._decided(rows, starts)
        self._check_decisions(rows, decided)
        terminated, truncated = self._ends(rows, starts, decided)
        piece = self._assemble(rows, starts, seen, terminated, truncated)
        self._place = self._place.after(len(rows))
        self.notes.rows += len(rows)
        return piece

    def _check_episodes(self, rows: Rows, starts: np.ndarray) -> None:
        names, first = self._names, starts[:-1]
        for column, labels in ((names.episode, rows.episode), (names.patient, rows.patient)):
            for row in np.flatnonzero(_empty(labels)):
                raise self._place.fault(int(row), column, "nothing", "an id")
        for row in first:
            if (label := _plain(rows.episode[row])) in self._episodes:
                expected = "rows of an episode together; sort the file by episode and step"
                raise self._place.fault(int(row), names.episode, f"{label!r} again after other episodes", expected)
            self._episodes.add(label)
        owner = np.repeat(rows.patient[first], np.diff(starts))
        for row in np.flatnonzero(rows.patient != owner):
            expected = f"{_plain(owner[row])!r} as in the other rows of this episode"
            raise self._place.fault(int(row), names.patient, repr(_plain(rows.patient[row])), expected)

    def _check_time(self, rows: Rows, starts: np.ndarray) -> None:
        column, time = self._names.time, rows.time
        check.check_finite(time[:, None], [column], self._place)
        columns = self._schema.columns
        if columns is not None and columns.step and (wrong := time != np.floor(time)).any():
            row = int(np.argmax(wrong))
            raise self._place.fault(row, column, f"{time[row]:g}", "a whole number; a time is declared as columns.time")
        rising = np.concatenate([[True], np.diff(time) > 0])
        rising[starts[:-1]] = True
        if not rising.all():
            row = int(np.argmin(rising))
            found = f"{time[row]:g} after {time[row - 1]:g} in episode {_plain(rows.episode[row])!r}"
            raise self._place.fault(row, column, found, "a rising value within an episode; sort the file")

    def _observations(self, rows: Rows, starts: np.ndarray) -> np.ndarray:
        """(n, F) -> (n, size), float32; states: (n,), int32."""
        names, spec = self._names.observations, self.spec.observation
        check.check_infinite(rows.observations, names, self._place)
        if spec.kind == "states":
            check.check_discrete(rows.observations, [spec.size], names, self._place)
            return rows.observations[:, 0].astype(np.int32)
        return self._missing.fill(rows.observations, starts, self._place, self.notes.missing)

    def _decided(self, rows: Rows, starts: np.ndarray) -> np.ndarray:
        """(n,) bool: rows that hold a decision."""
        decided = np.ones(len(rows), bool)
        if self._schema.episode.last_row == "observation":
            last = starts[1:] - 1
            decided[last] = False
            values = np.column_stack([rows.actions, rows.reward])[last]
            if (filled := ~np.isnan(values)).any():
                row, column = (int(k) for k in np.argwhere(filled)[0])
                expected = "an empty cell: the schema says that an episode's last row holds no decision"
                name = [*self._names.actions, self._names.reward][column]
                raise self._place.fault(int(last[row]), name, f"{values[row, column]:g}", expected)
        return decided

    def _check_decisions(self, rows: Rows, decided: np.ndarray) -> None:
        """Those of the rows that hold one; the others are stood in for by what passes."""
        names, place, action = self._names, self._place, self.spec.action
        actions = np.where(decided[:, None], rows.actions, _harmless(action, rows.actions.shape[1]))
        if action.kind == "discrete":
            check.check_discrete(actions, self._schema.action.counts, names.actions, place)
        else:
            check.check_continuous(actions, action, names.actions, place)
        reward = np.where(decided, rows.reward, 0.0)
        check.check_finite(reward[:, None], [names.reward], place, "a reward (0 where there is none)")
        behaviour = np.where(decided, rows.behaviour, np.nan)
        check.check_probabilities(behaviour, action.kind == "discrete", names.behaviour, place)
        if rows.allowed is not None:
            allowed = self._allowed(rows.allowed) | ~decided[:, None, None]
            check.check_allowed(allowed, self._joined(actions), self._action_columns(), place)

    def _allowed(self, flat: np.ndarray) -> np.ndarray:
        """(n, sum of sizes) -> (n, agents, width)"""
        spec = self.spec.action
        found = np.zeros((len(flat), spec.agents, spec.width), bool)
        begin = 0
        for agent, size in enumerate(spec.sizes):
            found[:, agent, :size] = flat[:, begin : begin + size]
            begin += size
        return found

    def _action_columns(self) -> list[str]:
        return [" x ".join(self._names.actions)] if self._schema.action.joint else self._names.actions

    def _joined(self, actions: np.ndarray) -> np.ndarray:
        """(n, C) numbers -> (n, agents) of discrete decision makers."""
        if not self._schema.action.joint:
            return actions.astype(np.int64)
        joint = np.ravel_multi_index(tuple(actions.astype(np.int64).T), tuple(self._schema.action.counts))
        return np.asarray(joint, np.int64)[:, None]

    def _ends(self, rows: Rows, starts: np.ndarray, decided: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(E,) bool each: episodes that terminated, that were cut. Termination wins."""
        count = len(starts) - 1
        end = self._schema.episode.end
        if end != "column":
            return np.full(count, end == "terminated"), np.full(count, end == "truncated")
        last = starts[1:] - 1 - ~decided[starts[1:] - 1]
        last = np.maximum(last, starts[:-1])
        terminated = self._flags(rows.terminated, last, decided, self._names.terminated)
        truncated = self._flags(rows.truncated, last, decided, self._names.truncated)
        self.notes.both_ends += int((terminated & truncated).sum())
        neither, columns = ~(terminated | truncated), self._schema.columns
        if columns is None:  # what followed is in the file, so the record was cut there
            self.notes.unmarked_ends += int(neither.sum())
        elif columns.truncated and neither.any():
            row = int(last[np.argmax(neither)])
            expected = f"1 here or in {self._names.truncated!r}: it is the last decision of its episode"
            raise self._place.fault(row, self._names.terminated, "0", expected)
        return terminated, ~terminated

    def _flags(self, values: np.ndarray, last: np.ndarray, decided: np.ndarray, column: str) -> np.ndarray:
        """(n,) -> (E,): set in the last decision of an episode, and nowhere else."""
        given = np.where(decided, values, 0.0)
        if (wrong := ~np.isin(given, (0.0, 1.0))).any():
            row = int(np.argmax(wrong))
            found = "nothing" if np.isnan(values[row]) else f"{values[row]:g}"
            raise self._place.fault(row, column, found, "0 or 1")
        early = given == 1
        early[last] = False
        if early.any():
            expected = "0: the episode goes on in the next row; end it there, or give the rest another episode id"
            raise self._place.fault(int(np.argmax(early)), column, "1", expected)
        return given[last] == 1

    def _assemble(
        self, rows: Rows, starts: np.ndarray, seen: np.ndarray, terminated: np.ndarray, truncated: np.ndarray
    ) -> LogArrays | None:
        """Which rows are decisions, and what follows the last decision of each episode."""
        last = starts[1:] - 1
        # a row after the last: what followed it where the file says so; after a true end anything, as it is worth 0
        extra = (terminated | (rows.following is not None)) & (self._schema.episode.last_row == "decision")
        lengths = np.diff(starts) - 1 + extra
        kept = lengths > 0
        self._note_dropped(rows, last, lengths, extra)
        if not kept.any():
            return None
        chosen = np.repeat(kept, np.diff(starts))  # rows of episodes that are kept
        decisions = chosen.copy()
        decisions[last[~extra]] = False
        after = self._following(rows, seen)[last]
        shown = np.concatenate([seen, after[extra & kept]])
        order = np.argsort(np.concatenate([np.flatnonzero(chosen), last[extra & kept] + 0.5]), kind="stable")
        source = np.concatenate([np.flatnonzero(chosen), len(seen) + np.arange(int((extra & kept).sum()))])[order]
        final = starts[:-1] + lengths - 1  # row of the last decision of each episode
        actions, spec = rows.actions[decisions], self.spec.action
        flat = None if rows.allowed is None else np.concatenate([rows.allowed, rows.allowed[last[extra & kept]]])
        return LogArrays(
            self.spec,
            observations=shown[source],
            actions=self._joined(actions)
            if spec.kind == "discrete"
            else actions.reshape(len(actions), spec.agents, spec.width).astype(np.float32),
            rewards=rows.reward[decisions].astype(np.float32),
            terminated=_marked(len(rows), final[kept & terminated])[decisions],
            truncated=_marked(len(rows), final[kept & truncated])[decisions],
            starts=np.concatenate([[0], np.cumsum(lengths[kept])]).astype(np.int64),
            patients=self._numbers(rows.patient[starts[:-1][kept]]),
            behaviour=rows.behaviour[decisions].astype(np.float32),
            dt=self._dt(rows, last)[decisions],
            allowed=None if flat is None else self._allowed(flat[source]),
        )

    def _note_dropped(self, rows: Rows, last: np.ndarray, lengths: np.ndarray, extra: np.ndarray) -> None:
        self.notes.dropped_episodes += int((lengths == 0).sum())
        if self._schema.episode.last_row == "decision":
            self.notes.dropped_decisions += int((~extra).sum())
            self.notes.dropped_rewards += int((rows.reward[last[~extra]] != 0).sum())

    def _following(self, rows: Rows, seen: np.ndarray) -> np.ndarray:
        """(n, ...): what each row led to, in the form of `seen`."""
        if rows.following is None:
            return seen
        if seen.ndim == 1:
            check.check_discrete(rows.following, [self.spec.observation.size], self._names.observations, self._place)
            return rows.following[:, 0].astype(np.int32)
        check.check_finite(rows.following, [f"next {name}" for name in self._names.observations], self._place)
        return rows.following.astype(np.float32)

    def _dt(self, rows: Rows, last: np.ndarray) -> np.ndarray:
        """(n,) float32: time to the next row; after the last one, a unit."""
        if rows.dt is not None:
            check.check_finite(rows.dt[:, None], ["dt"], self._place)
            return rows.dt.astype(np.float32)
        dt = np.append(np.diff(rows.time), 0.0) / self._schema.time.per_unit
        dt[last] = 1.0
        return dt.astype(np.float32)

    def _numbers(self, patients: np.ndarray) -> np.ndarray:
        return np.array([self._patients.setdefault(_plain(p), len(self._patients)) for p in patients], np.int64)


def _harmless(action: ActionSpec, columns: int) -> np.ndarray:
    """(C,) actions that pass every check."""
    if action.kind == "discrete":
        return np.zeros(columns)
    return np.tile(action.low, action.agents)


def _marked(count: int, rows: np.ndarray) -> np.ndarray:
    found = np.zeros(count, bool)
    found[rows] = True
    return found


def _plain(label: object) -> object:
    return label.item() if isinstance(label, np.generic) else label


def _empty(labels: np.ndarray) -> np.ndarray:
    if labels.dtype == object:
        return np.array([label is None or label == "" for label in labels])
    return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), bool)
