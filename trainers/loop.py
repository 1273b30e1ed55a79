"""collect -> update -> evaluate -> checkpoint, the same loop for every algorithm and every place it runs in.

What the loop needs from outer rooms is handed in through the protocols below; it imports none of them.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from refork.envs.forkable import InfraError, InfraFailure, Reward
from refork.replay.experience import Experience
from refork.replay.player import GroupRequest
from refork.replay.seeding import task_seed
from refork.trainers.ahead import Ahead
from refork.trainers.config import JobConfig
from refork.trainers.metrics import summarise
from refork.trainers.random_state import global_random_state, set_global_random_state
from refork.trainers.ranks import Ranks
from refork.trainers.sampler import TaskSampler

How = Any
"""How the next groups are played, from the trainer to the player: a ForkConfig or None for tasks (`replay/
counterfactual.py`), a PlayConfig for games (`replay/games.py`). The loop hands it on unread."""

Weights = Mapping[str, np.ndarray]
"""The acting network as float32 arrays by name: what goes to rollout actors, free of torch."""


class Collector(Protocol):
    """Plays groups, here or on actors."""

    def collect(self, requests: Sequence[GroupRequest], weights: Weights, version: int, how: How) -> Sequence[Any]:
        """The experience of the requests, in their order, whatever order they were played in.

        What was lost with its player comes back as infra outcomes.
        """

    def close(self) -> None:
        """Leave nothing behind."""


class Tracker(Protocol):
    """Where metrics go. A failure to log warns and goes on."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row; `step` is the update it belongs to and never goes backwards."""

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on with the same record (W&B run id); JSON values."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Checkpointer(Protocol):
    """Keeps committed states of the whole loop."""

    def save(self, step: int, state: Mapping[str, Any]) -> None:
        """`state`: nested dicts and lists of JSON values (integers of any size) and torch tensors, nothing else."""


class Evaluator(Protocol):
    """Judges the policy on tasks of its own, without touching any random stream of the training."""

    def evaluate(self, weights: Weights, version: int) -> Mapping[str, float]:
        """Metrics by name, e.g. `resolved`."""


class Trainer(Protocol):
    """Turns experience of its kind into better weights. `trainers/ALGORITHM/trainer.py` holds one each."""

    ranks: Ranks
    """The learners among which the work of an update is split; set before the first one."""

    def weights(self) -> Weights:
        """The current acting weights."""

    def fork_config(self, update: int) -> How:
        """How the groups of that update are to be played and forked."""

    def update(self, update: int, experience: Sequence[Any]) -> dict[str, float]:
        """One update, number `update` of the run from 0; loss terms and diagnostics by name."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Stalled(InfraFailure):
    """The run goes on without getting anything judged; the message gives the last reason."""


class Diverged(InfraFailure):
    """Training went to infinity; the message says where and what helps."""


class Loop:
    """One run. `state_dict` holds all that a resumed run needs to equal one that never stopped."""

    def __init__(
        self,
        job: JobConfig,
        trainer: Trainer,
        sampler: TaskSampler,
        collector: Collector,
        tracker: Tracker,
        checkpointer: Checkpointer,
        evaluator: Evaluator | None = None,
        summarise: Callable[[Sequence[Any]], dict[str, float]] = summarise,
        record: Callable[[int, Sequence[Any]], object] = lambda _update, _experience: None,
    ) -> None:
        """`record` keeps the experience of an update before anything is learnt from it."""
        self.job, self.trainer, self.sampler = job, trainer, sampler
        self.collector, self.tracker, self.checkpointer, self.evaluator = collector, tracker, checkpointer, evaluator
        self._summarise, self._record = summarise, record
        self._ahead = Ahead(collector.collect, job.rollout.max_staleness)
        self.update = 0
        """Updates done."""
        self.totals: Counter[str] = Counter()
        """What the run has spent so far: trajectories, steps, steps_executed, seconds ..."""
        self._unjudged_updates = 0
        self._masking = False
        """Did the last update have rollouts that the machinery failed?"""

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Go on to the last update, or to the end of the update in which `should_stop` turned true; then save.

        Raises Stalled, or InfraFailure when all tasks are quarantined.
        """
        while self.update < self.job.trainer.updates and not should_stop():
            self.step()
            if self.update % self.job.checkpoint.every == 0 and self.update < self.job.trainer.updates:
                self.save()
        self.save()

    def step(self) -> dict[str, float]:
        """One update: collect, learn, evaluate when due, log. Returns what was logged."""
        begun = time.perf_counter()
        last, weights = self.job.trainer.updates - 1, self.trainer.weights()
        experience = self._ahead.take(self.update, last, weights, self._requests, self.trainer.fork_config)
        self._record(self.update, experience)
        collected = time.perf_counter()
        self._check_progress(experience)
        self._tell_of_masked(experience)
        for task in [] if self._unjudged_updates else self.sampler.report(experience):  # all fail: not their fault
            warnings.warn(f"task {task} quarantined: {self.sampler.quarantined[task]}", stacklevel=2)
        metrics = self._summarise(experience)
        metrics |= self.trainer.update(self.update, experience)
        self.update += 1
        metrics |= {"seconds_collect": collected - begun, "seconds_update": time.perf_counter() - collected}
        metrics |= {"quarantined": float(len(self.sampler.quarantined))} | self._add_totals(metrics)
        metrics |= self._evaluate()
        self.tracker.log(self.update, metrics)
        return metrics

    def _requests(self) -> list[GroupRequest]:
        config, seed = self.job.trainer, self.job.seed
        return [
            GroupRequest(task, episode, seed, task_seed(seed, task), config.group)
            for task, episode in self.sampler.draw(config.tasks_per_update)
        ]

    def _check_progress(self, experience: Sequence[Experience]) -> None:
        outcomes = [outcome for group in experience for _, outcome in group.outcomes]
        judged = any(isinstance(outcome, Reward) for outcome in outcomes)
        self._unjudged_updates = 0 if judged else self._unjudged_updates + 1
        if self._unjudged_updates >= self.job.trainer.stall:
            last = outcomes[-1] if outcomes else "no rollout came back"
            raise Stalled(f"no rollout was judged in {self._unjudged_updates} updates in a row; the last one: {last}")

    def _tell_of_masked(self, experience: Sequence[Experience]) -> None:
        """Once for updates in a row."""
        outcomes = [outcome for group in experience for _, outcome in group.outcomes]
        reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, InfraError)]
        if reasons and not self._masking:
            warnings.warn(
                f"update {self.update + 1}: {len(reasons)} of {len(outcomes)} rollouts are masked, as their machinery "
                f"failed; the last one: {reasons[-1]}",
                stacklevel=3,
            )
        self._masking = bool(reasons)

    def _add_totals(self, metrics: Mapping[str, float]) -> dict[str, float]:
        for name in ("trajectories", "steps", "steps_executed", "seconds_collect", "seconds_update"):
            self.totals[name] += metrics[name]  # type: ignore[assignment]
        return {f"total/{name}": float(value) for name, value in self.totals.items()}

    def _evaluate(self) -> dict[str, float]:
        every = self.job.evaluate.every
        if self.evaluator is None or every == 0 or self.update % every:
            return {}
        evaluator, weights = self.evaluator, self.trainer.weights()
        found = self._ahead.alone(lambda: evaluator.evaluate(weights, self.update))
        return {f"validation/{name}": value for name, value in found.items()}

    def save(self) -> None:
        """Hand the whole state to the checkpointer."""
        self.checkpointer.save(self.update, self.state_dict())

    def state_dict(self) -> dict[str, Any]:
        return {
            "update": self.update,
            "totals": dict(self.totals),
            "unjudged_updates": self._unjudged_updates,
            "trainer": self.trainer.state_dict(),
            "sampler": self.sampler.state_dict(),
            "tracker": self.tracker.state_dict(),
            "ahead": self._ahead.state_dict(),
            "random": global_random_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`. Raises BadInput when the job, its tasks or its schedule do not fit it."""
        self.trainer.load_state_dict(state["trainer"])
        self.sampler.load_state_dict(state["sampler"])
        self.tracker.load_state_dict(state["tracker"])
        self.update, self.totals = state["update"], Counter(state["totals"])
        self._unjudged_updates = state["unjudged_updates"]
        self._ahead.load_state_dict(state["ahead"], self.trainer.fork_config(self.update))
        set_global_random_state(state["random"])
