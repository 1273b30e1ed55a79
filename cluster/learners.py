"""A run on several learners: workers of Ray Train, each with the same loop and rollout actors of its own.

All play their share, learn from all of it and hold the same weights; the first one writes. When a learner is lost, all
begin again at the newest checkpoint, so nothing is there twice.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from refork.cluster.boundary import Watch, ask_to_commit
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import committed
from refork.cluster.resources import need_of
from refork.cluster.run_folder import RunPaths
from refork.cluster.running_ray import open_ray
from refork.cluster.tracking import read_metrics
from refork.cluster.training import Display, Silent, assemble, open_players, prepare, train
from refork.envs.forkable import BadInput, InfraFailure
from refork.trainers.config import JobConfig
from refork.trainers.ranks import Ranks

log = logging.getLogger("refork.learners")

RESTARTS = 3
"""Times that learners are begun again in one call."""
GRACE_S = 20.0
"""Seconds in which the first learner must have committed when the run is told to end."""


class LeaderLost(Exception):
    """Ray Train's controller died: what its learners had set aside is only free again when this process leaves Ray."""


def train_on_learners(job: JobConfig, folder: RunPaths, display: Display, resume: bool = False) -> dict[str, float]:
    """Run the job in `folder` to its end; returns the totals. Raises BadInput, InfraFailure."""
    cluster = open_ray(job.cluster.address, need_of(job))
    try:
        with Follower(folder.path / "metrics.jsonl", display):
            for lost in range(RESTARTS + 1):
                cause = _fit(job, folder.path, resume, cluster.folder)
                if cause is None:
                    break
                if isinstance(cause, BadInput | InfraFailure) or lost == RESTARTS:
                    raise cause if isinstance(cause, BadInput) else InfraFailure(str(cause)) from cause
                said = str(cause).splitlines()[0]
                log.warning("a learner was lost (%s); going on from the newest checkpoint", said)
                resume = True
                if isinstance(cause, LeaderLost):
                    cluster.stop()
                    cluster = open_ray(job.cluster.address, need_of(job))
    finally:
        cluster.stop()
    last = read_metrics(folder.path / "metrics.jsonl")[-1]
    return {name.removeprefix("total/"): value for name, value in last.items() if name.startswith("total/")}


def _fit(job: JobConfig, folder: Path, resume: bool, scratch: Path) -> BaseException | None:
    """All learners to the end of the job; why not, if not."""
    from refork.cluster.local_ray import ray

    # isort: split
    from ray.train import RunConfig, ScalingConfig, TrainingFailedError, WorkerGroupError
    from ray.train.torch import TorchConfig, TorchTrainer

    class Trainer(TorchTrainer):
        def _register_sigint_handler(self, controller: object) -> None:
            """Ctrl+C stays ours: Ray Train's would end the learners before they have committed."""

    trainer = Trainer(
        _learn,
        train_loop_config={"job": job.model_dump(mode="json"), "folder": str(folder.absolute()), "resume": resume},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=job.cluster.learners, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=str(scratch / "train")),
    )
    try:
        trainer.fit()  # here and in no thread: one that still waits for Ray when we leave it can crash the process
    except WorkerGroupError as error:
        causes = list(error.worker_failures.values())
        return next((c for c in causes if isinstance(c, BadInput | InfraFailure)), causes[0])
    except TrainingFailedError as error:
        return error
    except ray.exceptions.RayActorError as error:
        return LeaderLost(f"what leads them {str(error).splitlines()[0].removeprefix('The actor ')}")
    except KeyboardInterrupt:
        if not ask_to_commit(folder, GRACE_S):
            log.warning("the learners did not save within %.0f s; what was committed before is whole", GRACE_S)
        raise
    return None


def _learn(config: Mapping[str, Any]) -> None:
    """One learner."""
    from refork.cluster.ranks import TorchRanks

    ranks = TorchRanks()
    parts = prepare(JobConfig.model_validate(config["job"]))
    parts.trainer.ranks = ranks
    folder = RunPaths(Path(config["folder"]))
    if ranks.rank == 0:
        train(parts, folder, Silent(), config["resume"], ranks, lambda b: Watch(folder.path, b, Notices()))
    else:
        _follow(parts, folder, config["resume"], ranks)


def _follow(parts: Any, folder: RunPaths, resume: bool, ranks: Ranks) -> None:
    """The same loop, and nothing is written."""
    with ExitStack() as stack:
        stack.callback(parts.family.close)
        saved = committed(folder.checkpoints) if resume else []
        start = read(saved[-1]) if saved else None
        assemble(parts, open_players(parts, ranks), Silent(), Silent(), stack, start).run()


class Notices:
    """Word that a node of the cluster will be taken away (a spot notice, `ray drain-node`): true once for each."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self) -> bool:
        from refork.cluster.local_ray import ray

        leaving = set(ray._private.state.state.get_draining_nodes())  # Ray Train itself asks so; nothing public does
        new, self._known = bool(leaving - self._known), self._known | leaving
        return new


class Follower:
    """Shows the rows of a metrics file as they are written."""

    INTERVAL_S = 0.5

    def __init__(self, path: Path, display: Display) -> None:
        self._path, self._display = path, display
        self._shown = max((row["step"] for row in read_metrics(path)), default=0)
        self._read = (0, 0)
        """The file, by its number, and how much of it was read: a resumed run writes another."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _follow(self) -> None:
        while not self._ended.wait(self.INTERVAL_S):
            self._show()

    def _show(self) -> None:
        for row in self._new_rows():
            if row["step"] > self._shown:
                self._shown = row["step"]
                self._display.log(row["step"], {k: v for k, v in row.items() if k != "step" and v is not None})

    def _new_rows(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            begin = self._read[1] if found.st_ino == self._read[0] and found.st_size >= self._read[1] else 0
            file.seek(begin)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read = (found.st_ino, begin + len(whole))
        return [json.loads(line) for line in whole.splitlines()]

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._show()
        self._display.close(failed=kind is not None)
