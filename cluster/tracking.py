"""Where metrics go: `metrics.jsonl` always, W&B beside it. A failure to log warns and goes on, a failure to open stops.

Rows never go backwards: a resumed run first drops the rows beyond its checkpoint, so that none is there twice.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from refork.cluster.wandb_sink import About, Table, Wandb, wandb_mode
from refork.envs.forkable import BadInput

log = logging.getLogger("refork.tracking")


class Sink(Protocol):
    """One place metrics go to."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, failed: bool) -> None: ...


class Record(Protocol):
    """One place that keeps more of a run than its metrics."""

    def model(self, folder: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> None: ...

    def report(self, name: str, picture: Path, table: Table) -> None: ...


class Tracking:
    """The one writer of a run's metrics."""

    def __init__(self, sinks: Mapping[str, Sink], run_id: str | None = None, record: Record | None = None) -> None:
        """`sinks` by name, for warnings; `run_id` is W&B's and `record` W&B, None without it."""
        self._sinks, self.run_id, self.record = dict(sinks), run_id, record
        self._last = -1
        self._warned: set[tuple[str, str]] = set()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row. A sink that fails is named once in a warning; the others go on. ValueError for a step back."""
        if step < self._last:
            raise ValueError(f"logged step {step} after {self._last}")
        self._last = step
        for name, sink in self._sinks.items():
            self._guard(name, lambda sink=sink: sink.log(step, metrics))  # type: ignore[misc]

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._last = int(state["last"])

    def close(self, failed: bool = False) -> None:
        for name, sink in self._sinks.items():
            self._guard(name, lambda sink=sink: sink.close(failed))  # type: ignore[misc]

    def keep(self, what: str, act: Callable[[Record], None]) -> None:
        """Let the record, where there is one, keep `what` ("models"); what fails is named once in a warning."""
        if (record := self.record) is not None:
            self._guard("wandb", lambda: act(record), what)

    def _guard(self, name: str, act: Callable[[], None], what: str = "metrics") -> None:
        """Whatever a sink raises (a full disk, a broken connection, its library's own) must not end training."""
        try:
            act()
        except Exception as error:
            if (name, what) not in self._warned:
                said = " ".join(str(error).split())
                log.warning("%s: %s are not recorded: %s; the run goes on", name, what, said)
            self._warned.add((name, what))


class Jsonl:
    """One JSON object a line, flushed line by line. A row is `{"step": ..., metric: value ...}`."""

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        """`resume_at`: keep only whole rows up to this step. Raises BadInput when the file cannot be written."""
        try:
            if resume_at is not None:
                _truncate(path, resume_at)
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise BadInput(f"{path}: metrics cannot be written: {error.strerror}; choose another --runs") from error

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = {"step": step, **{key: _plain(value) for key, value in metrics.items()}}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self, failed: bool = False) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The rows of a metrics file; a torn last line (of a killed run) is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ():
        if line.endswith("\n"):
            rows.append(json.loads(line))
    return rows


def _truncate(path: Path, step: int) -> None:
    kept = [row for row in read_metrics(path) if row["step"] <= step]
    aside = path.with_suffix(".tmp")
    aside.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    os.replace(aside, path)


def _plain(value: float) -> float | int | None:
    """JSON has no NaN or infinity: they become null."""
    number = value.item() if hasattr(value, "item") else value
    return number if isinstance(number, int) or math.isfinite(number) else None


def open_tracking(
    folder: Path,
    mode: str,
    run_id: str,
    about: About,
    resume_at: int | None = None,
    more: Mapping[str, Sink] | None = None,
) -> Tracking:
    """Open all sinks of the run in `folder`, and `more`. `resume_at`: the step of the checkpoint gone on from."""
    path = folder / "metrics.jsonl"
    sinks: dict[str, Sink] = {path.name: Jsonl(path, resume_at), **(more or {})}
    chosen = wandb_mode(mode)
    if chosen == "off":
        return Tracking(sinks)
    record = Wandb(folder, chosen, run_id, about, read_metrics(path))
    return Tracking({**sinks, "wandb": record}, run_id, record)
