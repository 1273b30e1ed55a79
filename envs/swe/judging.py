"""Grades by workspace id: each state is judged once, then remembered here and in the execution cache."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import NamedTuple

from refork.envs.forkable import (
    Edge,
    ExecutionCache,
    InfraError,
    InfraFailure,
    Outcome,
    Reward,
    Spent,
    outcome_from_json,
    outcome_to_json,
)
from refork.envs.swe.sandbox.base import Sandbox
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet

Grader = Callable[[Sandbox, SWETask, TaskSet], Outcome]
"""Judges a sandbox's state without disturbing it."""
ACTION = "grade:1"


class Judgement(NamedTuple):
    outcome: Outcome
    spent: Spent


class Judge:
    """Only rewards are remembered: what failed for want of machinery or time is tried again."""

    def __init__(self, tasks: TaskSet, task: SWETask, grader: Grader, cache: ExecutionCache | None) -> None:
        self.tasks, self.task, self.grader, self.cache = tasks, task, grader, cache
        self._known: dict[str, Outcome] = {}

    def grade(self, workspace_id: str, at: Callable[[], Sandbox]) -> Judgement:
        """The outcome of a workspace; `at` gives a sandbox that is in it, and is called only when needed."""
        if workspace_id in self._known:
            return Judgement(self._known[workspace_id], Spent(False, 0.0))
        edge = self.cache.lookup(self.task.instance_id, workspace_id, ACTION) if self.cache else None
        if edge is not None:
            outcome, spent = outcome_from_json(json.loads(edge.observation)), Spent(False, edge.cost_s)
        else:
            started = time.perf_counter()
            outcome = self.grader(at(), self.task, self.tasks)
            spent = Spent(True, time.perf_counter() - started)
        if isinstance(outcome, Reward):
            self._known[workspace_id] = outcome
            if self.cache and spent.executed:
                edge = Edge(json.dumps(outcome_to_json(outcome)).encode(), spent.seconds, workspace_id)
                self.cache.record(self.task.instance_id, workspace_id, ACTION, edge)
        return Judgement(outcome, spent)


def both(one: Spent, other: Spent) -> Spent:
    return Spent(one.executed or other.executed, one.seconds + other.seconds)


def reward_of(outcome: Outcome) -> float:
    """What `step` returns at the end of an episode; the outcome itself is in `info`, where a Timeout is no 0.

    Raises InfraFailure for an InfraError.
    """
    if isinstance(outcome, InfraError):
        raise InfraFailure(outcome.reason)
    return outcome.value if isinstance(outcome, Reward) else 0.0
