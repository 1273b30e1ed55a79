"""Where metrics go: `metrics.jsonl` always, W&B beside it. A failure to log warns and goes on, a failure to open stops.

Rows never go backwards: a resumed run first drops the rows beyond its checkpoint, so that none is there twice.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from refork.envs.forkable import BadInput

log = logging.getLogger("refork.tracking")


class Sink(Protocol):
    """One place metrics go to."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, failed: bool) -> None: ...


class Tracking:
    """The one writer of a run's metrics."""

    def __init__(self, sinks: Mapping[str, Sink], run_id: str | None = None) -> None:
        """`sinks` by name, for warnings; `run_id` is W&B's, None without it."""
        self._sinks, self.run_id = dict(sinks), run_id
        self._last = -1
        self._warned: set[str] = set()

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

    def _guard(self, name: str, act: Callable[[], None]) -> None:
        """Whatever a sink raises (a full disk, a broken connection, its library's own) must not end training."""
        try:
            act()
        except Exception as error:
            if name not in self._warned:
                log.warning("%s: metrics are not recorded: %s; the run goes on", name, error)
            self._warned.add(name)


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


class Wandb:
    """W&B, all of its files inside the run's folder."""

    def __init__(self, folder: Path, project: str, mode: str, run_id: str, config: Mapping[str, Any]) -> None:
        """`mode`: online or offline. A `run_id` seen before is resumed. Raises BadInput when W&B cannot be opened."""
        place = folder / "wandb"
        for variable in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
            os.environ.setdefault(variable, str(place))
        import wandb  # slow, and some runs have it off

        settings = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, init_timeout=60)
        try:
            place.mkdir(exist_ok=True)
            self._run = wandb.init(
                project=project,
                name=folder.name,
                dir=folder,
                mode="online" if mode == "online" else "offline",
                id=run_id,
                resume="allow",
                config=dict(config),
                settings=settings,
            )
        except (wandb.Error, OSError) as error:
            raise BadInput(f"W&B cannot be opened: {error}; --tracking.wandb offline or off does without") from error

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """A resumed run repeats exactly what its lost part did, so rows the server has already are not sent again."""
        if step >= self._run.step:
            self._run.log(dict(metrics), step=step)

    def close(self, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


def wandb_mode(wanted: str) -> str:
    """`auto` is online with a key, else offline. A key is in the environment or in the netrc file W&B writes."""
    if wanted != "auto":
        return wanted
    return "online" if os.environ.get("WANDB_API_KEY") or _netrc_has_key() else "offline"


def _netrc_has_key() -> bool:
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    return path.is_file() and "wandb" in path.read_text(errors="replace")


def open_tracking(
    folder: Path,
    project: str,
    mode: str,
    config: Mapping[str, Any],
    run_id: str,
    resume_at: int | None = None,
    more: Mapping[str, Sink] | None = None,
) -> Tracking:
    """Open all sinks of the run in `folder`, and `more`. `resume_at`: the step of the checkpoint gone on from."""
    sinks: dict[str, Sink] = {"metrics.jsonl": Jsonl(folder / "metrics.jsonl", resume_at), **(more or {})}
    chosen = wandb_mode(mode)
    if chosen != "off":
        sinks["wandb"] = Wandb(folder, project, chosen, run_id, config)
    return Tracking(sinks, run_id if chosen != "off" else None)
