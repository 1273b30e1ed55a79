"""What an evaluation says: exact shares, pass@k, packages; infra is listed and never counted."""

import json

import pytest
from refork.cluster.evaluation import requests, spread_over_packages
from refork.cluster.judgement import judge
from refork.envs.forkable import InfraError, Outcome, Reward, Timeout
from refork.replay.trajectory import TaskExperience, Trajectory


def _group(task: str, *outcomes: Outcome) -> TaskExperience:
    return TaskExperience(task, 0, tuple(Trajectory(task, 0, i, (), outcome) for i, outcome in enumerate(outcomes)))


YES, NO, BROKEN, LATE = Reward(1.0), Reward(0.0), InfraError("container died"), Timeout("grading")
GROUPS = [
    _group("a-1", YES, NO, NO, NO),
    _group("a-2", YES, YES, BROKEN, LATE),
    _group("b-1", NO, NO, NO, NO),
    _group("b-2", BROKEN, BROKEN, BROKEN, BROKEN),
]


def test_shares_are_means_over_tasks_of_judged_attempts() -> None:
    found = judge("p", "sampled", GROUPS, lambda task: task[0], (1, 2, 4))
    assert found.resolved is not None
    assert found.resolved.estimate == pytest.approx((1 / 4 + 1 + 0) / 3)
    assert found.resolved.low < found.resolved.estimate < found.resolved.high
    assert (found.tasks, found.attempts) == (3, 10)
    assert found.pass_at == pytest.approx({1: (1 / 4 + 1 + 0) / 3, 2: (1 / 2 + 1 + 0) / 3, 4: (1 + 0) / 2})
    assert {name: i.estimate for name, i in found.by_package.items()} == {"a": 0.625, "b": 0.0}


def test_what_was_not_judged_is_listed_with_its_reason() -> None:
    found = judge("p", "sampled", GROUPS, lambda task: task[0])
    listed = [(u.task, u.attempt, u.reason) for u in found.unjudged]
    assert listed[:2] == [("a-2", 2, "container died"), ("a-2", 3, "timeout in grading")]
    assert len(listed) == 6


def test_nothing_judged_is_no_zero() -> None:
    found = judge("p", "greedy", [GROUPS[3]], lambda task: task[0], (1,))
    assert found.resolved is None
    assert found.pass_at == {}
    assert found.by_package == {}
    assert json.loads(json.dumps(found.to_json()))["resolved"] is None


def test_json_holds_all(tmp_path: object) -> None:
    data = json.loads(json.dumps(judge("p", "sampled", GROUPS, lambda task: task[0], (1,)).to_json()))
    assert data["resolved"]["estimate"] == pytest.approx(5 / 12)
    assert data["by_package"]["b"] == {"estimate": 0.0, "low": 0.0, "high": 0.0}
    assert data["unjudged"][0] == {"task": "a-2", "attempt": 2, "reason": "container died"}


def test_tasks_are_spread_evenly_over_packages() -> None:
    tasks = [f"a-{i}" for i in range(10)] + ["b-0", "b-1"] + [f"c-{i}" for i in range(5)]
    chosen = spread_over_packages(tasks, lambda task: task[0], 8)
    assert chosen == ["a-0", "a-4", "a-9", "b-0", "b-1", "c-0", "c-2", "c-4"]
    assert spread_over_packages(tasks, lambda task: task[0], 0) == sorted(tasks)
    assert spread_over_packages(tasks, lambda task: task[0], 99) == sorted(tasks)


def test_evaluation_has_streams_of_its_own() -> None:
    (asked,) = requests(["a-1"], 3, 4)
    assert asked.seed != 3
    assert asked.size == 4
    assert requests(["a-1"], 3, 4, greedy=True)[0].size == 1
    assert requests(["a-1"], 4, 4)[0].seed != asked.seed
