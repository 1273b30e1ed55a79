"""Which tasks come next: reshuffled once an epoch, each task once in it; tasks whose machinery fails are set aside."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from refork.envs.forkable import BadInput, InfraError, InfraFailure, Outcome
from refork.replay.experience import Experience
from refork.replay.seeding import generator


class TaskSampler:
    """The order depends on the seed and the position alone; `state_dict` is all there is to resume it exactly."""

    def __init__(self, tasks: Sequence[str], seed: int, quarantine: int = 3) -> None:
        """Raises BadInput for no task or a task named twice."""
        if not tasks:
            raise BadInput("no tasks to train on: build some (refork tasks build) or choose other packages")
        if len(set(tasks)) < len(tasks):
            raise BadInput(f"task {next(t for t in tasks if tasks.count(t) > 1)!r} is listed twice")
        self._tasks, self._seed, self._cap = tuple(tasks), seed, quarantine
        self._go_to(0, 0)
        self._failures: dict[str, int] = {}
        self.quarantined: dict[str, str] = {}
        """Tasks set aside, with the reason of the last failure."""

    def draw(self, count: int) -> list[tuple[str, int]]:
        """The next `count` tasks with their episode number (how often the task was drawn before).

        Raises InfraFailure when every task is quarantined.
        """
        drawn: list[tuple[str, int]] = []
        while len(drawn) < count:
            if len(self.quarantined) == len(self._tasks):
                task, reason = next(iter(self.quarantined.items()))
                raise InfraFailure(f"all {len(self._tasks)} tasks are quarantined; {task}: {reason}")
            task = self._order[self._position]
            if task not in self.quarantined:
                drawn.append((task, self._epoch))
            self._advance()
        return drawn

    def _go_to(self, epoch: int, position: int) -> None:
        order = generator(self._seed, "task order", epoch).permutation(len(self._tasks))
        self._order = [self._tasks[i] for i in order]
        self._epoch, self._position = epoch, position

    def _advance(self) -> None:
        self._position += 1
        if self._position == len(self._tasks):
            self._go_to(self._epoch + 1, 0)

    def report(self, experiences: Iterable[Experience]) -> list[str]:
        """Take note of groups in which nothing was judged; returns the tasks quarantined now."""
        new = []
        for experience in experiences:
            for task, outcomes in _by_task(experience).items():
                reasons = [outcome.reason for outcome in outcomes if isinstance(outcome, InfraError)]
                failed = len(reasons) == len(outcomes)
                self._failures[task] = self._failures.get(task, 0) + 1 if failed else 0
                if self._failures[task] >= self._cap and task not in self.quarantined:
                    self.quarantined[task] = reasons[-1]
                    new.append(task)
        return new

    def _digest(self) -> str:
        return hashlib.sha256("\n".join(self._tasks).encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        return {
            "tasks": self._digest(),
            "epoch": self._epoch,
            "position": self._position,
            "failures": {task: n for task, n in self._failures.items() if n},
            "quarantined": dict(self.quarantined),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInput when the tasks are not those the state was saved with."""
        if state["tasks"] != self._digest():
            raise BadInput(
                "the task set is not the one this run was trained on: rebuild it from the same recipes, or start anew"
            )
        self._go_to(state["epoch"], state["position"])
        self._failures, self.quarantined = dict(state["failures"]), dict(state["quarantined"])


def _by_task(experience: Experience) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = defaultdict(list)
    for task, outcome in experience.outcomes:
        found[task].append(outcome)
    return found
