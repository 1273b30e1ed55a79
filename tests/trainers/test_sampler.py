import pytest
from refork.envs.forkable import BadInput, InfraFailure
from refork.replay.counterfactual import GroupRequest, lost_group
from refork.replay.trajectory import TaskExperience
from refork.trainers.sampler import TaskSampler

from tests.trainers.made import group, main

TASKS = [f"task-{i}" for i in range(10)]


def _lost(task: str) -> TaskExperience:
    return lost_group(GroupRequest(task, 0, 0, 0, 2), "no image")


def test_an_epoch_has_every_task_once_in_an_order_of_its_own() -> None:
    sampler = TaskSampler(TASKS, 0)
    first, second = sampler.draw(10), sampler.draw(10)
    assert {t for t, _ in first} == {t for t, _ in second} == set(TASKS)
    assert [e for _, e in first + second] == [0] * 10 + [1] * 10
    assert [t for t, _ in first] != [t for t, _ in second] != TASKS
    assert TaskSampler(TASKS, 0).draw(10) == first
    assert TaskSampler(TASKS, 1).draw(10) != first


def test_no_draw_repeats_a_task_and_episode() -> None:
    drawn = TaskSampler(TASKS, 0).draw(37)
    assert len(set(drawn)) == 37


@pytest.mark.parametrize("before", [0, 3, 10, 13])
def test_resuming_goes_on_in_the_middle_of_the_epoch(before: int) -> None:
    straight, stopped, resumed = (TaskSampler(TASKS, 4) for _ in range(3))
    straight.draw(before), stopped.draw(before)
    resumed.load_state_dict(stopped.state_dict())
    assert resumed.draw(25) == straight.draw(25)


def test_other_tasks_are_refused_on_resuming() -> None:
    state = TaskSampler(TASKS, 0).state_dict()
    for other in (TASKS[:-1], TASKS[::-1], [*TASKS, "new"]):
        with pytest.raises(BadInput, match="not the one this run was trained on"):
            TaskSampler(other, 0).load_state_dict(state)


def test_a_task_that_fails_again_and_again_is_set_aside_with_its_reason() -> None:
    sampler = TaskSampler(TASKS, 0, quarantine=3)
    assert sampler.report([_lost("task-4")]) == []
    assert sampler.report([_lost("task-4"), _lost("task-5")]) == []
    assert sampler.report([_lost("task-4")]) == ["task-4"]
    assert sampler.quarantined == {"task-4": "no image"}
    assert "task-4" not in {t for t, _ in sampler.draw(30)}
    again = TaskSampler(TASKS, 0)
    again.load_state_dict(sampler.state_dict())
    assert again.quarantined == {"task-4": "no image"}
    assert again.report([_lost("task-5"), _lost("task-5")]) == ["task-5"]  # its first failure was saved


def test_one_judged_rollout_or_a_timeout_clears_the_count() -> None:
    sampler = TaskSampler(["t", "u"], 0, quarantine=2)
    for values in ([1.0, "infra"], ["timeout", "infra"]):
        sampler.report([group([main(i, v) for i, v in enumerate(["infra", "infra"])])])
        sampler.report([group([main(i, v) for i, v in enumerate(values)])])
    assert sampler.quarantined == {}


def test_when_all_are_set_aside_the_run_ends_with_the_reason() -> None:
    sampler = TaskSampler(["a", "b"], 0, quarantine=1)
    sampler.report([_lost("a"), _lost("b")])
    with pytest.raises(InfraFailure, match="all 2 tasks are quarantined; a: no image"):
        sampler.draw(1)


@pytest.mark.parametrize(("tasks", "message"), [([], "no tasks to train on"), (["a", "b", "a"], "'a' is listed twice")])
def test_no_tasks_or_doubled_ones_are_bad_input(tasks: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        TaskSampler(tasks, 0)
