"""Puts a training run together: folder, tasks, collector, trainer, tracking, checkpoints; and takes it apart again."""

from __future__ import annotations

import copy
import logging
import random
import secrets
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from refork.cluster.checkpoint import Checkpoint, CheckpointStore
from refork.cluster.collector import RecordedCollector, open_collector
from refork.cluster.family import Family, open_family
from refork.cluster.resources import check_resources
from refork.cluster.run_folder import RunFolder
from refork.cluster.tracking import Sink, Tracking, open_tracking
from refork.envs.forkable import BadInput, InfraFailure
from refork.trainers.config import JobConfig
from refork.trainers.loop import Loop, Trainer
from refork.trainers.make import make_trainer
from refork.trainers.sampler import TaskSampler

log = logging.getLogger("refork.training")


class Display(Sink, Protocol):
    """Shows a run: every experience as it comes, and the metrics of every update."""

    def group(self, experience: Any) -> None: ...


@dataclass
class _Boundary:
    """The state at the end of the last update: what an interrupted run saves, wherever in the next one it was."""

    loop: Loop
    step: int = -1
    state: dict[str, Any] = field(default_factory=dict)

    def note(self) -> bool:
        """Called by the loop between updates; never asks it to stop."""
        self.step, self.state = self.loop.update, copy.deepcopy(self.loop.state_dict())
        return False


@dataclass(frozen=True)
class Parts:
    """What a run is made of before it has a folder, so that bad input leaves nothing behind."""

    job: JobConfig
    family: Family
    sampler: TaskSampler
    trainer: Trainer


def prepare(job: JobConfig) -> Parts:
    """Raises BadInput for what the job's text alone could not show: tasks, agent options, resources."""
    torch.set_num_threads(1)
    seed_global_generators(job.seed)
    check_resources(job.rollout.actors)
    family = open_family(job)
    sampler = TaskSampler(family.names("train"), job.seed, job.trainer.quarantine)
    return Parts(job, family, sampler, build_trainer(job, family.feature_names))


def seed_global_generators(seed: int) -> None:
    """Nothing of ours draws from them; what a library draws is repeatable all the same."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def train(parts: Parts, folder: RunFolder, display: Display, resume: bool = False) -> dict[str, float]:
    """Run the job in `folder` to its end; returns the totals.

    Interrupted (KeyboardInterrupt) or failed, the state after the last whole update is committed before the
    exception goes on. Raises BadInput, InfraFailure.
    """
    job = parts.job
    with ExitStack() as stack:
        stack.callback(folder.close)
        stack.callback(parts.family.close)
        store = CheckpointStore(folder.checkpoints, job.checkpoint.keep, lambda: {"job": job.model_dump(mode="json")})
        loop = _assemble(parts, folder, store, store.load_newest() if resume else None, display, stack)
        boundary = _Boundary(loop)
        try:
            loop.run(boundary.note)
        except BaseException as error:
            _save_boundary(store, boundary)
            if isinstance(error, OSError):
                raise InfraFailure(str(error)) from error
            raise
        return dict(loop.totals)


def _save_boundary(store: CheckpointStore, boundary: _Boundary) -> None:
    """What ended the run is said in any case, so a disk that is full here too is only added to it."""
    if boundary.step < 0 or _is_saved(store, boundary.step):
        return
    try:
        store.save(boundary.step, boundary.state)
    except OSError as error:
        log.warning("update %d could not be saved: %s; an earlier checkpoint is whole", boundary.step, error)


def _is_saved(store: CheckpointStore, step: int) -> bool:
    newest = store.newest()
    return newest is not None and newest.name.startswith(f"step-{step:08d}")


def _assemble(
    parts: Parts,
    folder: RunFolder,
    store: CheckpointStore,
    start: Checkpoint | None,
    display: Display,
    stack: ExitStack,
) -> Loop:
    job, family = parts.job, parts.family
    tracking = _open_tracking(job, folder, start, display)
    stack.push(lambda kind, *_: tracking.close(failed=kind is not None))
    experience = family.store(folder.trajectories)
    experience.drop_from(start.step if start else 0)
    players = open_collector(family.spec, job.rollout.actors, [display.group])
    collector = RecordedCollector(players, experience)
    stack.callback(collector.close)
    evaluator = family.evaluator(collector) if job.evaluate.every else None
    loop = Loop(job, parts.trainer, parts.sampler, collector, tracking, store, evaluator, family.summarise)
    if start:
        loop.load_state_dict(start.state)
    return loop


def build_trainer(job: JobConfig, feature_names: Any) -> Trainer:
    """The trainer for observations with these features. Raises BadInput for options that its agent does not take."""
    try:
        return make_trainer(job, feature_names)
    except ValueError as error:
        raise BadInput(str(error)) from error


def _open_tracking(job: JobConfig, folder: RunFolder, start: Checkpoint | None, display: Display) -> Tracking:
    """The record of a run goes on under the id it began with, and without the rows beyond its checkpoint."""
    run_id = start.state["tracker"]["run_id"] if start else None
    return open_tracking(
        folder.path,
        job.tracking.project,
        job.tracking.wandb,
        job.model_dump(mode="json"),
        run_id or secrets.token_hex(4),
        start.step if start else None,
        {"display": display},
    )
