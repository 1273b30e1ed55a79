"""A run in which RLlib samples and learns: our folder, metrics, checkpoints and evaluation around its iterations.

RLlib's state is saved as the files that it writes, inside our own committed checkpoint. It does not hold the episodes
in progress nor the state of the samplers' generators: a resumed run goes on from the same weights, optimiser and
counters, but on other episodes than a run that never stopped. Reading that state unpickles, as RLlib does: resume only
runs whose folder you trust. `refork evaluate` reads none of it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from refork.cluster.checkpoint import Checkpoint
from refork.cluster.checkpoints import open_checkpoints
from refork.cluster.collector import LocalCollector
from refork.cluster.family import Family, open_family
from refork.cluster.local_ray import LocalRay
from refork.cluster.rllib import results_in
from refork.cluster.rllib_judging import NOT_JUDGED, is_judged, judging_job
from refork.cluster.rllib_log import check_log, with_log
from refork.cluster.rllib_policy import export
from refork.cluster.rllib_settings import algorithm_config, is_offline
from refork.cluster.run_folder import RunPaths
from refork.cluster.tracking import Tracking
from refork.cluster.tracking_checkpoints import TrackedCheckpoints
from refork.cluster.training import Display, seed_global_generators, start_tracking
from refork.envs.forkable import BadInput, InfraFailure
from refork.replay.seeding import generator
from refork.trainers.config import JobConfig
from refork.trainers.loop import Checkpointer, Evaluator

log = logging.getLogger("refork.training")

TOTALS = ("trajectories", "steps", "seconds_update")
"""Of the metrics, what is added up over the run."""
HELPERS = 2
"""Cores that Ray may give to the readers of a log, beside env runners and learners."""


@dataclass(frozen=True)
class Parts:
    """What a run is made of before it has a folder, so that bad input leaves nothing behind."""

    job: JobConfig
    family: Family
    config: Any
    """RLlib's AlgorithmConfig."""


def prepare(job: JobConfig) -> Parts:
    """Raises BadInput for what the job's text alone could not show."""
    torch.set_num_threads(1)
    seed_global_generators(job.seed)
    for name in ("ray", "ray.rllib"):
        logging.getLogger(name).setLevel(logging.ERROR)  # they advise, line upon line, to set what we have set
    family = open_family(judging_job(job))
    family.names("train")
    config = algorithm_config(job, family)
    if is_offline(config):
        _check_offline(job, family)
    if job.evaluate.every:
        if not is_judged(family):
            raise BadInput(f"evaluate.every: {NOT_JUDGED}; set it to 0")
        family.evaluator(LocalCollector(family.spec))  # raises where there is nothing to judge on
    return Parts(job, family, config)


def _check_offline(job: JobConfig, family: Any) -> None:
    if family.experience != "logs":
        raise BadInput(f"trainer.algorithm: {job.trainer.algorithm} learns from a log, {job.env.id} gives none")  # type: ignore[attr-defined]
    if job.rollout.actors or job.cluster.learners > 1:
        raise BadInput("rollout.actors, cluster.learners: a log is read in this process: set them to 0 and 1")
    check_log(family.source.log)


@dataclass
class Progress:
    """What is saved. `files`: RLlib's state, each file as bytes (n,), uint8, by its path; `policy`, `untrained`: the
    acting weights as our own are exported."""

    update: int = 0
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0.0))
    files: dict[str, torch.Tensor] = field(default_factory=dict)
    policy: dict[str, np.ndarray] = field(default_factory=dict)
    untrained: dict[str, np.ndarray] = field(default_factory=dict)


class Run:
    """RLlib's iterations with what surrounds them."""

    def __init__(self, parts: Parts, algorithm: Any, tracking: Tracking, evaluator: Evaluator | None) -> None:
        self.parts, self.algorithm, self.tracking, self.evaluator = parts, algorithm, tracking, evaluator
        self.now = Progress()

    def begin(self, start: Checkpoint | None) -> None:
        """Go on from `start`, or note where learning begins."""
        if start is None:
            policy = self._policy()
            self.now = Progress(files=files_of(self.algorithm), policy=policy, untrained=policy)
            return
        state = start.state
        restore_files(self.algorithm, state["files"])
        self.tracking.load_state_dict(state["tracker"])
        self.now = Progress(state["update"], state["totals"], state["files"], state["policy"], state["untrained"])

    def step(self) -> None:
        """One iteration: `now` changes when it is whole, and not before."""
        begun = perf_counter()
        found = metrics_of(self.algorithm.train())
        found["seconds_update"] = perf_counter() - begun
        totals = {name: self.now.totals[name] + found[name] for name in self.now.totals}
        policy, update = self._policy(), self.now.update + 1
        every = self.parts.job.evaluate.every
        if self.evaluator is not None and update % every == 0:
            judged = self.evaluator.evaluate(policy, update)
            found |= {f"validation/{name}": value for name, value in judged.items()}
        self.now = Progress(update, totals, files_of(self.algorithm), policy, self.now.untrained)
        self.tracking.log(update, found | {f"total/{name}": float(value) for name, value in totals.items()})

    def state(self) -> dict[str, Any]:
        return {**vars(self.now), "tracker": self.tracking.state_dict()}

    def _policy(self) -> dict[str, np.ndarray]:
        return export(self.parts.job, self.parts.family, self.algorithm)


def train(parts: Parts, folder: RunPaths, display: Display, resume: bool = False) -> dict[str, float]:
    """Run the job in `folder` to its end; returns the totals.

    Interrupted (KeyboardInterrupt) or failed, the state after the last whole iteration is committed before the
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
        _note_log(parts, folder)
        collector = LocalCollector(parts.family.spec)
        stack.callback(collector.close)
        evaluator = parts.family.evaluator(collector) if job.evaluate.every else None
        run = Run(parts, _build(parts, folder, start.step if start else 0, stack), tracking, evaluator)
        run.begin(start)
        kept = TrackedCheckpoints(store, tracking, job.tracking.artifacts, folder.path / "metrics.jsonl")
        _iterate(run, kept)
        kept.finish(run.now.update)
        return dict(run.now.totals)


def _iterate(run: Run, store: Checkpointer) -> None:
    """To the last iteration; whatever ends it earlier, what is whole is saved first."""
    job, saved = run.parts.job, run.now.update if run.now.update else -1
    try:
        while run.now.update < job.trainer.updates:
            run.step()
            if run.now.update % job.checkpoint.every == 0 and run.now.update < job.trainer.updates:
                store.save(run.now.update, run.state())
                saved = run.now.update
    except BaseException as error:
        if run.now.update != saved:
            _save_last(run, store)
        if isinstance(error, Exception) and not isinstance(error, InfraFailure):
            raise InfraFailure(f"RLlib failed in iteration {run.now.update + 1}: {_last_line(error)}") from error
        raise
    if run.now.update != saved:
        store.save(run.now.update, run.state())


def _save_last(run: Run, store: Checkpointer) -> None:
    try:
        store.save(run.now.update, run.state())
    except OSError as error:
        log.warning("update %d could not be saved: %s; an earlier checkpoint is whole", run.now.update, error)


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def _build(parts: Parts, folder: RunPaths, step: int, stack: ExitStack) -> Any:
    """The algorithm on a private Ray; what RLlib writes for itself lies in Ray's folder, and goes with it.

    A resumed run draws anew, or it would play the episodes of its first iterations again.
    """
    job, config = parts.job, parts.config.copy(copy_frozen=False)
    config.debugging(seed=int(generator(job.seed, "rllib", step).integers(2**31)))
    if is_offline(config):
        with_log(config, parts.family.source, folder.trajectories)  # type: ignore[attr-defined]
    cluster = LocalRay.start(job.rollout.actors + job.cluster.learners + HELPERS)
    stack.callback(cluster.stop)
    results_in(cluster.folder)
    try:
        algorithm = config.build_algo()
    except (ValueError, TypeError) as error:
        raise BadInput(f"trainer.options: RLlib says: {_last_line(error)}") from error
    stack.callback(_end, algorithm)
    return algorithm


def _end(algorithm: Any) -> None:
    """Before Ray ends: readers of a log that are collected after it would complain."""
    with contextlib.suppress(Exception):  # what ended the run is said; Ray's end takes what is left
        algorithm.stop()
    algorithm.offline_data = algorithm.learner_group = None
    gc.collect()


def _note_log(parts: Parts, folder: RunPaths) -> None:
    """A run on a log notes which one it is, and refuses to go on with another."""
    if parts.family.experience == "logs":
        note = parts.family.store(folder.trajectories)
        note.drop_from(0)
        note.write(0, [])


def files_of(algorithm: Any) -> dict[str, torch.Tensor]:
    """What RLlib saves, by path below its folder."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm.save_to_path(folder)
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {
            str(path.relative_to(folder)): torch.from_numpy(np.frombuffer(path.read_bytes(), np.uint8).copy())
            for path in paths
        }


def restore_files(algorithm: Any, files: Mapping[str, torch.Tensor]) -> None:
    """The inverse of `files_of`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.numpy().tobytes())
        algorithm.restore_from_path(folder)


def metrics_of(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of RLlib's result that tell of episodes and learning, by their path; `trajectories` and `steps`.

    Timers of its parts are left out. `steps`: sampled in this iteration; from a log, trained on.
    """
    found = {
        name: value
        for part in ("env_runners", "learners")
        for name, value in _numbers(result.get(part, {}), part)
        if "timer" not in name and "connector" not in name and "throughput" not in name
    }
    steps = found.get("env_runners/num_env_steps_sampled", found.get("learners/__all_modules__/num_env_steps_trained"))
    episodes = found.get("env_runners/num_episodes", 0.0)
    return {"trajectories": episodes, "steps": steps or 0.0, "steps_executed": steps or 0.0, **found}


def _numbers(tree: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield from _numbers(inner, f"{path}/{name}")
    elif isinstance(tree, int | float | np.number) and not isinstance(tree, bool) and math.isfinite(tree):
        yield path, float(tree)
