"""Committed checkpoints as versions of the run's model in W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from refork.cluster.checkpoint_folder import step_of
from refork.cluster.retention import judged
from refork.cluster.tracking import Tracking, read_metrics


class Store(Protocol):
    """What commits them."""

    def save(self, step: int, state: Mapping[str, Any]) -> None: ...

    def newest(self) -> Path | None: ...


class TrackedCheckpoints:
    """A store of checkpoints that tells W&B of what it has committed."""

    def __init__(self, store: Store, tracking: Tracking, which: Literal["none", "last", "all"], metrics: Path) -> None:
        """`which` are kept as artifacts; `metrics`: the run's `metrics.jsonl`."""
        self._store, self._tracking, self._which, self._metrics = store, tracking, which, metrics

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """Raises OSError as the store does; what W&B fails at is a warning."""
        self._store.save(step, state)
        if self._which == "all":
            self._publish(step)

    def finish(self, step: int) -> None:
        """The run has ended well, at update `step`."""
        if self._which == "last":
            self._publish(step)

    def _publish(self, step: int) -> None:
        path = self._store.newest()
        if path is None or step_of(path.name) != step:  # there was no room to save this one
            return
        rows = [row for row in read_metrics(self._metrics) if row["step"] <= step]
        metadata = {"step": step, **(rows[-1] if rows and rows[-1]["step"] == step else {})}
        self._tracking.keep("models", lambda record: record.model(path, aliases(rows, step), metadata))


def aliases(rows: Sequence[Mapping[str, Any]], step: int) -> list[str]:
    """`latest`, and `best` when the evaluation at `step` is better than all before it in `rows`."""
    values = judged(rows)
    best = max(values, key=lambda at: (values[at], -at), default=None)
    return ["latest", "best"] if best == step else ["latest"]
