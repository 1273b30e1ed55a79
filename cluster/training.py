"""Puts a training run together: folder, tasks, collector, trainer, tracking, checkpoints; and takes it apart again."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from refork.cluster.boundary import Boundary
from refork.cluster.checkpoint import Checkpoint
from refork.cluster.checkpoints import open_checkpoints
from refork.cluster.collector import GroupCollector, Sink, open_collector
from refork.cluster.family import Family, open_family
from refork.cluster.resources import need_of
from refork.cluster.run_folder import RunPaths
from refork.cluster.tracking import Sink as MetricSink
from refork.cluster.tracking import Tracking, open_tracking
from refork.cluster.tracking_checkpoints import TrackedCheckpoints
from refork.cluster.tracking_origin import about
from refork.cluster.tracking_report import report_forks
from refork.cluster.wandb_files import known_id
from refork.envs.forkable import BadInput, InfraFailure
from refork.replay.experience import ExperienceStore
from refork.trainers.config import JobConfig
from refork.trainers.loop import Checkpointer, Loop, Tracker, Trainer
from refork.trainers.make import make_trainer
from refork.trainers.ranks import Alone, Ranks
from refork.trainers.sampler import TaskSampler

log = logging.getLogger("refork.training")

Record = Callable[[int, Sequence[Any]], None]
"""Keeps the experience of an update."""


class Display(MetricSink, Protocol):
    """Shows a run: every experience as it comes, and the metrics of every update."""

    def group(self, experience: Any) -> None: ...


class Silent:
    """A display, a tracker and a checkpointer that do nothing."""

    def group(self, experience: Any) -> None:
        pass

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass

    def close(self, failed: bool = False) -> None:
        pass


@dataclass(frozen=True)
class Parts:
    """What a run is made of before it has a folder, so that bad input leaves nothing behind."""

    job: JobConfig
    family: Family
    sampler: TaskSampler
    trainer: Trainer


def prepare(job: JobConfig) -> Parts:
    """Raises BadInput for what the job's text alone could not show: tasks, agent options."""
    torch.set_num_threads(1)
    seed_global_generators(job.seed)
    family = open_family(job)
    sampler = TaskSampler(family.names("train"), job.seed, job.trainer.quarantine)
    return Parts(job, family, sampler, build_trainer(job, family.feature_names))


def seed_global_generators(seed: int) -> None:
    """Nothing of ours draws from them; what a library draws is repeatable all the same."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def train(
    parts: Parts,
    folder: RunPaths,
    display: Display,
    resume: bool = False,
    ranks: Ranks | None = None,
    watch: Callable[[Boundary], AbstractContextManager[None]] | None = None,
) -> dict[str, float]:
    """Run the job in `folder` to its end; returns the totals. `ranks`: the learners, of which this is the first;
    `watch`: what commits for it while it runs.

    Interrupted (KeyboardInterrupt) or failed, the state after the last whole update is committed before the
    exception goes on. Raises BadInput, InfraFailure.
    """
    job = parts.job
    with ExitStack() as stack:
        stack.callback(folder.close)
        stack.callback(parts.family.close)
        store = stack.enter_context(open_checkpoints(job, folder))
        start = store.load_newest() if resume else None
        tracking = start_tracking(job, folder, start, display, resume)
        stack.push(lambda kind, *_: tracking.close(failed=kind is not None))
        experience = parts.family.store(folder.trajectories)
        experience.drop_from(start.step if start else 0)
        players = open_players(parts, ranks or Alone(), [display.group])
        record = _recorder(experience)
        kept = TrackedCheckpoints(store, tracking, job.tracking.artifacts, folder.path / "metrics.jsonl")
        boundary = Boundary(store, kept)
        loop = assemble(parts, players, tracking, boundary, stack, start, record)
        if watch is not None:
            stack.enter_context(watch(boundary))
        try:
            loop.run(lambda: boundary.note(loop))
        except BaseException as error:
            boundary.commit()
            if isinstance(error, OSError):
                raise InfraFailure(str(error)) from error
            raise
        report_forks(parts.family, experience, tracking, folder.path)
        kept.finish(loop.update)
        return dict(loop.totals)


def _recorder(store: ExperienceStore) -> Record:
    """Writes what an update learns from to the run's store. Raises InfraFailure when it cannot be written."""

    def record(update: int, played: Sequence[Any]) -> None:
        try:
            store.write(update, played)
        except OSError as error:
            raise InfraFailure(f"{store.folder}: trajectories cannot be written: {error.strerror}") from error

    return record


def open_players(parts: Parts, ranks: Ranks, sinks: Sequence[Sink] = ()) -> GroupCollector:
    """Who plays: everything, or this learner's share; a log is read by all."""
    spec, need = parts.family.spec, need_of(parts.job)
    if ranks.size == 1:
        return open_collector(spec, need, sinks, parts.job.cluster.address)
    if parts.family.experience == "logs":
        return open_collector(spec, sinks=sinks)
    from refork.cluster.ranks import RankedCollector

    return RankedCollector(spec, need, ranks, sinks)


def assemble(
    parts: Parts,
    collector: GroupCollector,
    tracker: Tracker,
    checkpointer: Checkpointer,
    stack: ExitStack,
    start: Checkpoint | None,
    record: Record = lambda _update, _experience: None,
) -> Loop:
    """The loop of a run, gone on with from `start`."""
    job, family = parts.job, parts.family
    stack.callback(collector.close)
    evaluator = family.evaluator(collector) if job.evaluate.every else None
    summarise = family.summarise
    loop = Loop(job, parts.trainer, parts.sampler, collector, tracker, checkpointer, evaluator, summarise, record)
    if start:
        loop.load_state_dict(start.state)
    return loop


def build_trainer(job: JobConfig, feature_names: Any) -> Trainer:
    """The trainer for observations with these features. Raises BadInput for options that its agent does not take."""
    try:
        return make_trainer(job, feature_names)
    except ValueError as error:
        raise BadInput(str(error)) from error


def start_tracking(
    job: JobConfig, folder: RunPaths, start: Checkpoint | None, display: Display, resume: bool
) -> Tracking:
    """The record of a run goes on under the id it began with, and without the rows beyond its checkpoint."""
    resume_at = start.step if start else 0 if resume else None
    run_id = (start.state["tracker"]["run_id"] if start else None) or known_id(folder.path) or secrets.token_hex(4)
    told = about(job, folder.path)
    return open_tracking(folder.path, job.tracking.wandb, run_id, told, resume_at, {"display": display})
