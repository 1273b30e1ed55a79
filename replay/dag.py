"""The state DAG of all tasks, shared by every process of a host.

An edge in it need not be executed again. A task whose edge came out in two ways is not deterministic: from then on
nothing of it is answered. The cache is disposable: whatever fails in it is warned about, and the run goes on without.
"""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from refork.envs.forkable import Edge
from refork.replay.dag_file import DagFile
from refork.replay.dag_rows import (
    EDGES,
    LOOKUP,
    TOUCH,
    action_bytes,
    drop_oldest_tenth,
    insert_edge,
    now,
    pack,
    task_id,
    unpack,
)

Key = tuple[str, str, str]
"""task, state id, action"""

ENTRY_BYTES = 400
"""What an edge takes in memory beside its observation."""
TOUCHES = 1024
"""Edges used since their last note on disk, at most: they are noted together."""


@dataclass
class DagCounts:
    """What this process got from the cache."""

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    recorded: int = 0
    evicted: int = 0


class StateDag:
    """The execution cache (`ExecutionCache`) and the reading side for trees and estimators. One thread at a time."""

    def __init__(
        self, path: Path, *, max_bytes: int = 2 << 30, memory_bytes: int = 64 << 20, refresh_s: float = 1.0
    ) -> None:
        """`max_bytes` on disk, `memory_bytes` in memory, both least recently used first.

        `refresh_s`: seconds after which what other processes found not deterministic is read again.
        """
        self.counts = DagCounts()
        self._file = DagFile(path)
        self._max_bytes, self._memory_bytes, self._refresh_s = max_bytes, memory_bytes, refresh_s
        self._memory: OrderedDict[Key, Edge] = OrderedDict()
        self._held = 0
        self._touched: set[Key] = set()
        self._conflicts: dict[str, str] = {}
        self._refreshed = float("-inf")

    def lookup(self, task: str, state_id: str, action: str) -> Edge | None:
        """The edge, or None when it is not known or `task` is not deterministic."""
        key = (task, state_id, action)
        if task in self.nondeterministic():
            return None
        edge = self._memory.get(key)
        if edge is not None:
            self._memory.move_to_end(key)
            self.counts.memory_hits += 1
            self._touch(key)
            return edge
        row = self._file.read(lambda c: c.execute(LOOKUP, (task, state_id, action_bytes(action))).fetchone(), None)
        if row is None:
            self.counts.misses += 1
            return None
        self.counts.disk_hits += 1
        edge = Edge(unpack(row[2]), row[1], row[0])
        self._touch(key)
        self._remember(key, edge)
        return edge

    def record(self, task: str, state_id: str, action: str, edge: Edge) -> None:
        """Add an edge. One that is there already and differs makes the task nondeterministic."""
        if task in self.nondeterministic():
            return
        row = (state_id, action_bytes(action), edge.child_id, edge.cost_s, pack(edge.observation), now())
        known = self._file.write(lambda c: insert_edge(c, task_id(c, task), row), None)
        if known is None:
            self._remember((task, state_id, action), edge)
            self.counts.recorded += 1
            if self.counts.recorded % 64 == 0:
                self._evict()
        elif (child := known[0]) != edge.child_id or unpack(known[1]) != edge.observation:
            what = f"to {child[:12]} and to {edge.child_id[:12]}" if child != edge.child_id else "to two observations"
            self._conflict(task, f"action {action[:60]!r} in state {state_id[:12]} led {what}")

    def nondeterministic(self) -> dict[str, str]:
        """Tasks found not deterministic, by any process, with what differed."""
        if time.monotonic() - self._refreshed > self._refresh_s:
            self._refreshed = time.monotonic()
            rows: list[tuple[str, str]] = self._file.read(
                lambda c: c.execute("SELECT name, conflict FROM tasks WHERE conflict IS NOT NULL").fetchall(), []
            )
            self._conflicts.update(rows)
        return self._conflicts

    def edges(self, task: str) -> Iterator[tuple[str, str, Edge]]:
        """(state id, action, edge) of a task, in the order recorded."""
        none: list[tuple[str, bytes, str, float, bytes]] = []
        for state, action, child, cost_s, observation in self._file.read(
            lambda c: c.execute(EDGES, (task,)).fetchall(), none
        ):
            yield state, action.decode("utf-8", "surrogatepass"), Edge(unpack(observation), cost_s, child)

    def nodes(self, task: str) -> set[str]:
        """State ids of a task that some edge leaves or enters."""
        return {node for state, _, edge in self.edges(task) for node in (state, edge.child_id)}

    def used_bytes(self) -> int:
        """Bytes in use on disk."""
        return self._file.used_bytes()

    @property
    def errors(self) -> int:
        """Failed reads and writes so far."""
        return self._file.errors

    def close(self) -> None:
        self._flush_touched()
        self._file.close()

    def _remember(self, key: Key, edge: Edge) -> None:
        previous = self._memory.pop(key, None)
        self._held += _size(edge) - (_size(previous) if previous else 0)
        self._memory[key] = edge
        while self._held > self._memory_bytes:
            _, dropped = self._memory.popitem(last=False)
            self._held -= _size(dropped)

    def _touch(self, key: Key) -> None:
        self._touched.add(key)
        if len(self._touched) >= TOUCHES:
            self._flush_touched()

    def _flush_touched(self) -> None:
        noted, touched = now(), sorted(self._touched)
        self._touched.clear()
        if touched:
            rows = [(noted, task, state, action_bytes(action)) for task, state, action in touched]
            self._file.write(lambda c: c.executemany(TOUCH, rows), None)

    def _conflict(self, task: str, reason: str) -> None:
        self._conflicts[task] = reason
        self._file.write(lambda c: c.execute("UPDATE tasks SET conflict = ? WHERE name = ?", (reason, task)), None)
        warnings.warn(f"task {task} is not deterministic and runs uncached from now on: {reason}", stacklevel=3)

    def _evict(self) -> None:
        """Drop the least recently used tenth of every table until the file is within its bounds."""
        self._flush_touched()
        for _ in range(20):
            if self._file.used_bytes() <= self._max_bytes:
                return
            self.counts.evicted += self._file.write(drop_oldest_tenth, 0)


def _size(edge: Edge) -> int:
    return ENTRY_BYTES + len(edge.observation)
