"""W&B as a place metrics go to: rows, models and pictures of a run, all of its files inside the run's folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from refork.cluster.wandb_files import last_step, segments
from refork.envs.forkable import BadInput

STEPS = "total/steps"
"""What curves are drawn over: steps of the environment since the run began."""


class About(NamedTuple):
    """What W&B is told of a run once."""

    project: str
    group: str
    tags: Sequence[str]
    config: Mapping[str, Any]


class Table(NamedTuple):
    """A table of a report."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Wandb:
    """One run of W&B, opened once for each time that the run is gone on with."""

    def __init__(
        self, folder: Path, mode: str, run_id: str, about: About, earlier: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        """`mode`: online or offline. A `run_id` seen before is resumed, and of the rows logged `earlier` those are
        added that W&B lost when the run was killed. Raises BadInput when W&B cannot be opened."""
        self._places = _Places(folder)
        try:
            self._run = _open(folder, mode, run_id, about)
        except OSError as error:
            self._places.restore()
            raise BadInput(_cannot(error)) from error
        except BadInput:
            self._places.restore()
            raise
        self._next = max(self._run.starting_step, last_step(folder) + 1 if mode == "offline" else 0)
        self._logged = -1
        self._run.define_metric(STEPS)
        self._run.define_metric("update", hidden=True)
        self._run.define_metric("*", step_metric=STEPS)
        for row in earlier:
            self.log(row["step"], {key: value for key, value in row.items() if key != "step" and value is not None})

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """A resumed run repeats exactly what its lost part did, so rows that W&B has already are not sent again: on
        uploading it would move a second row of the same step, and all after it, one step on."""
        if step >= self._next:
            self._run.log({**metrics, "update": step}, step=step)
            self._logged = step

    def model(self, folder: Path, aliases: Sequence[str], metadata: Mapping[str, Any]) -> None:
        """Keep a copy of a checkpoint's folder as the next version of the run's model."""
        import wandb

        artifact = wandb.Artifact(f"model-{self._run.id}", "model", metadata=dict(metadata))
        for path in sorted(folder.iterdir()):
            artifact.add_file(str(path), policy="mutable")  # a copy: old checkpoints are deleted
        self._run.log_artifact(artifact, aliases=list(aliases))

    def report(self, name: str, picture: Path, table: Table) -> None:
        """A picture, and a table when it has rows, in the row logged last; nothing when none was logged."""
        import wandb

        if self._logged < 0:
            return
        media: dict[str, Any] = {f"report/{name}": wandb.Image(str(picture))}
        if table.rows:
            media[f"report/{name}_table"] = wandb.Table(list(table.columns), [list(row) for row in table.rows])
        self._run.log(media, step=self._logged)

    def close(self, failed: bool = False) -> None:
        try:
            self._run.finish(exit_code=int(failed))
        finally:
            self._places.restore()


def places(folder: Path) -> dict[str, str]:
    """The environment variables that let W&B write into a run's folder and nowhere else."""
    place = str((folder / "wandb").absolute())
    own = {"WANDB_DATA_DIR": place, "WANDB_CACHE_DIR": place, "WANDB_ARTIFACT_DIR": place}
    if not (Path.home() / ".config" / "wandb").exists():  # settings of a user (a server's address) are read
        own["WANDB_CONFIG_DIR"] = place
    return own


class _Places:
    """Those variables, set while a run is open."""

    def __init__(self, folder: Path) -> None:
        own = places(folder)
        self._before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)

    def restore(self) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _open(folder: Path, mode: str, run_id: str, about: About) -> Any:
    import wandb  # slow, and some runs have it off

    (folder / "wandb").mkdir(exist_ok=True)
    _wait_for_a_new_name(folder)
    settings = wandb.Settings(silent=True, console="off", disable_git=True, save_code=False, init_timeout=60)
    try:
        return wandb.init(
            project=about.project,
            group=about.group,
            job_type="train",
            tags=list(about.tags),
            name=folder.name,
            dir=folder,
            mode="online" if mode == "online" else "offline",
            id=run_id,
            resume="allow",
            config=dict(about.config),
            settings=settings,
        )
    except wandb.Error as error:
        raise BadInput(_cannot(error)) from error


def _wait_for_a_new_name(folder: Path) -> None:
    """Segments are named by the second: a second one of that name would be written over the first."""
    taken = {segment.parent.name.removeprefix("offline-").split("-")[1] for segment in segments(folder)}
    while time.strftime("%Y%m%d_%H%M%S") in taken:
        time.sleep(0.05)


def _cannot(error: Exception) -> str:
    return f"W&B cannot be opened: {error}; --tracking.wandb offline or off does without"


def wandb_mode(wanted: str) -> str:
    """`auto` is online with a key, else offline."""
    if wanted != "auto":
        return wanted
    return "online" if has_key() else "offline"


def check_key(wanted: str) -> None:
    """Raises BadInput for `online` without a key."""
    if wanted == "online" and not has_key():
        raise BadInput(
            "tracking.wandb: online needs a key: set WANDB_API_KEY or run `wandb login`; offline or off does without"
        )


def has_key() -> bool:
    """A key is in the environment or in the netrc file that W&B writes."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    kept = path.read_text(errors="replace") if path.is_file() else ""
    return "wandb" in kept or (urlsplit(os.environ.get("WANDB_BASE_URL", "")).hostname or "wandb") in kept
