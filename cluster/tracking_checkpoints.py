"""Committed checkpoints as versions of the run's model in W&B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from refork.cluster.checkpoint import CheckpointStore
from refork.cluster.tracking import Tracking, read_metrics

JUDGED_BY = ("validation/resolved", "validation/fraction", "validation/fqe")
"""What tells the best checkpoint of tasks, games and logs; more is better."""


class TrackedCheckpoints:
    """A store of checkpoints that tells W&B of what it has committed."""

    def __init__(
        self, store: CheckpointStore, tracking: Tracking, which: Literal["none", "last", "all"], metrics: Path
    ) -> None:
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
        if path is None:
            return
        rows = [row for row in read_metrics(self._metrics) if row["step"] <= step]
        metadata = {"step": step, **(rows[-1] if rows and rows[-1]["step"] == step else {})}
        self._tracking.keep("models", lambda record: record.model(path, aliases(rows, step), metadata))


def aliases(rows: Sequence[Mapping[str, Any]], step: int) -> list[str]:
    """`latest`, and `best` when the evaluation at `step` is better than all before it in `rows`."""
    for name in JUDGED_BY:
        judged = [(row[name], row["step"]) for row in rows if row.get(name) is not None]
        if judged:
            best = max(judged, key=lambda found: (found[0], -found[1]))
            return ["latest", "best"] if best[1] == step else ["latest"]
    return ["latest"]
