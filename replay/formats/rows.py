"""Rows of a file as every format hands them in: what they say, where episodes begin, what their columns are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np


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


def plain(label: object) -> object:
    """A label as messages show it."""
    return label.item() if isinstance(label, np.generic) else label
