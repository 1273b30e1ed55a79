"""The loop: learns on the chain, resumes to the bit, stalls loudly, sets broken tasks aside."""

import copy
import io
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from refork.envs.chain import ChainEnv
from refork.envs.forkable import BadInput, InfraFailure
from refork.replay.counterfactual import ForkConfig, GroupRequest, lost_group
from refork.replay.trajectory import TaskExperience
from refork.trainers.loop import Loop, Stalled, Weights

from tests.trainers.chain_run import ChainCollector, chain_job, chain_loop, weights_of


def _through_disk(state: dict) -> dict:
    """What a checkpoint may hold: tensors and plain values, read back in the safe mode."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def _steps(loop: Loop, count: int) -> None:
    for _ in range(count):
        loop.step()


@pytest.mark.parametrize("kind", ["crr", "grpo", "tree"])
@pytest.mark.parametrize("hidden", [(), (16,)])
def test_resuming_equals_never_having_stopped(kind: str, hidden: Sequence[int]) -> None:
    job = chain_job(kind, hidden, updates=10, schedule="cosine", warmup=2, kl=0.01, epochs=2, minibatch=64, group=4)
    straight, straight_rows = chain_loop(job, tasks=20)
    _steps(straight, 10)
    first, _ = chain_loop(job, tasks=20)
    _steps(first, 5)
    saved = _through_disk(first.state_dict())
    second, second_rows = chain_loop(job, tasks=20)
    second.load_state_dict(saved)
    torch.rand(3), np.random.random(3)  # other users of the global generators do not matter
    _steps(second, 5)
    assert (weights_of(second) == weights_of(straight)).all()
    assert not (weights_of(second) == weights_of(first)).all()
    volatile = ("seconds_collect", "seconds_update", "rollout_seconds")
    for (step, row), (step2, row2) in zip(straight_rows.rows[5:], second_rows.rows, strict=True):
        assert step == step2
        assert {k: v for k, v in row.items() if not k.endswith(volatile)} == {
            k: v for k, v in row2.items() if not k.endswith(volatile)
        }


def test_the_state_holds_the_process_wide_generators() -> None:
    loop, _ = chain_loop(chain_job())
    torch.manual_seed(5), np.random.seed(5)
    saved = copy.deepcopy(loop.state_dict())
    drawn = torch.rand(2).tolist(), np.random.random(2).tolist()
    loop.load_state_dict(saved)
    assert (torch.rand(2).tolist(), np.random.random(2).tolist()) == drawn


class _Failing(ChainCollector):
    """Loses the groups of some tasks."""

    def __init__(self, *tasks: str) -> None:
        super().__init__()
        self.tasks = tasks
        self.asked: list[str] = []

    def collect(
        self, requests: Sequence[GroupRequest], weights: Weights, version: int, forks: ForkConfig | None
    ) -> list[TaskExperience]:
        self.asked += [r.task for r in requests]
        played = super().collect(requests, weights, version, forks)
        return [
            lost_group(r, "actor died") if r.task in self.tasks else e for r, e in zip(requests, played, strict=True)
        ]


class _Recovering(_Failing):
    """Loses none any more after the fourth update."""

    def collect(
        self, requests: Sequence[GroupRequest], weights: Weights, version: int, forks: ForkConfig | None
    ) -> list[TaskExperience]:
        self.tasks = self.tasks if len(self.asked) < 4 * len(self.tasks) else ()
        return super().collect(requests, weights, version, forks)


def test_lost_groups_are_masked_counted_and_their_task_set_aside() -> None:
    collector = _Failing("chain-1")
    loop, rows = chain_loop(chain_job(tasks_per_update=4, updates=8, quarantine=2), tasks=4, collector=collector)
    with pytest.warns(UserWarning, match="task chain-1 quarantined: actor died"):
        loop.run()
    assert collector.asked.count("chain-1") == 2
    assert [row["infra_errors"] for _, row in rows.rows] == [3, 3, 0, 0, 0, 0, 0, 0]
    assert [row["quarantined"] for _, row in rows.rows] == [0, 1, 1, 1, 1, 1, 1, 1]
    assert all(0 <= row["resolved"] <= 1 for _, row in rows.rows)


def test_lost_groups_do_not_change_what_the_others_teach() -> None:
    job = chain_job(tasks_per_update=2, updates=1)
    with_lost, _ = chain_loop(job, tasks=2, collector=_Failing("chain-1"))
    with_lost.step()
    alone, _ = chain_loop(chain_job(tasks_per_update=1, updates=1), tasks=1)
    alone.step()
    assert (weights_of(with_lost) == weights_of(alone)).all()


def test_what_fails_everywhere_is_no_tasks_fault() -> None:
    """Else a run that a full disk has stopped would find all its tasks set aside when there is room again."""
    job = chain_job(tasks_per_update=4, updates=8, quarantine=2, stall=5)
    loop, rows = chain_loop(job, tasks=4, collector=_Recovering(*(f"chain-{i}" for i in range(4))))
    with pytest.warns(UserWarning, match="update 1: 12 of 12 rollouts are masked, .* the last one: actor died") as told:
        loop.run()
    assert len(told) == 1
    assert [row["quarantined"] for _, row in rows.rows] == [0] * 8
    assert [row["infra_errors"] for _, row in rows.rows] == [12] * 4 + [0] * 4


def test_a_run_in_which_nothing_is_judged_stalls_loudly() -> None:
    tasks = [f"chain-{i}" for i in range(64)]
    loop, rows = chain_loop(chain_job(updates=50, stall=3), collector=_Failing(*tasks))
    with pytest.raises(Stalled, match=r"no rollout was judged in 3 updates in a row; .*actor died"):
        loop.run()
    assert len(rows.rows) == 2


def test_an_environment_that_always_breaks_never_becomes_a_reward() -> None:
    class Broken(ChainEnv):
        def step(self, action: object) -> tuple:
            raise InfraFailure("container died")

    loop, rows = chain_loop(chain_job(updates=2), collector=ChainCollector(Broken))
    before = weights_of(loop)
    loop.run()
    assert (weights_of(loop) == before).all()
    assert rows.rows[0][1]["infra_errors"] == 24
    assert "resolved" not in rows.rows[0][1]


def test_checkpoints_come_when_due_and_at_the_end() -> None:
    job = chain_job(updates=7).model_copy(update={"checkpoint": chain_job().checkpoint.model_copy(update={"every": 3})})
    loop, rows = chain_loop(job)
    loop.run()
    assert [step for step, _ in rows.saved] == [3, 6, 7]
    assert [step for step, _ in rows.rows] == [1, 2, 3, 4, 5, 6, 7]


def test_stopping_ends_after_the_update_and_saves() -> None:
    loop, rows = chain_loop(chain_job(updates=100))
    loop.run(should_stop=lambda: loop.update == 2)
    assert loop.update == 2
    assert [step for step, _ in rows.saved] == [2]


def test_the_validation_share_is_logged_when_due() -> None:
    class Evaluator:
        def evaluate(self, weights: Weights, version: int) -> dict[str, float]:
            return {"resolved": version / 10}

    job = chain_job(updates=4)
    job = job.model_copy(update={"evaluate": job.evaluate.model_copy(update={"every": 2})})
    loop, rows = chain_loop(job)
    loop.evaluator = Evaluator()
    loop.run()
    assert [row.get("validation/resolved") for _, row in rows.rows] == [None, 0.2, None, 0.4]


def test_every_continuation_counts_against_the_budget() -> None:
    loop, rows = chain_loop(chain_job(updates=5))
    loop.run()
    for _, row in rows.rows:
        assert row["trajectories"] == 24 + row["branches"]
        assert row["steps"] == row["steps_executed"] >= 24 * 20
    assert rows.rows[-1][1]["total/steps"] == sum(row["steps"] for _, row in rows.rows)
    assert rows.rows[-1][1]["branches"] > 0


def test_a_changed_schedule_is_refused_on_resuming() -> None:
    saved, _ = chain_loop(chain_job(schedule="linear", updates=10))
    changed, _ = chain_loop(chain_job(schedule="linear", updates=20))
    with pytest.raises(BadInput, match=r"--trainer.horizon 10"):
        changed.load_state_dict(saved.state_dict())


def test_the_amount_of_forking_adapts_within_bounds_and_is_resumed() -> None:
    loop, rows = chain_loop(chain_job(updates=15, forks=6, forks_max=8, adapt_rate=0.5))
    loop.run()
    asked = [row["forks_per_rollout"] for _, row in rows.rows]
    assert max(asked) == 8.0  # nearly every fork of the chain tells something
    again, _ = chain_loop(chain_job(updates=15, forks=6, forks_max=8))
    again.load_state_dict(loop.state_dict())
    config = again.trainer.fork_config(15)
    assert config is not None
    assert config.forks == asked[-1] != 6


def test_a_checkpoint_of_another_network_is_refused() -> None:
    wide, narrow = (chain_loop(chain_job(hidden=hidden))[0].trainer for hidden in ([8], []))
    with pytest.raises(BadInput, match="another network"):
        wide.load_state_dict(narrow.state_dict())
