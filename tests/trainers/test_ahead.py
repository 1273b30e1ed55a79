"""Playing ahead: which policy plays what, that it goes on beside learning, and that a resumed run is the same run."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from refork.cluster.codec import decode, encode
from refork.envs.forkable import InfraFailure
from refork.replay.player import GroupRequest
from refork.replay.trajectory import TaskExperience
from refork.trainers.ahead import Ahead
from refork.trainers.config import JobConfig
from refork.trainers.loop import Loop, Weights
from refork.trainers.staleness import correction, together

from tests.trainers.chain_run import ChainCollector, chain_job, chain_loop, weights_of


def job(lag: int, **trainer: Any) -> JobConfig:
    made = chain_job(**trainer)
    return made.model_copy(update={"rollout": made.rollout.model_copy(update={"max_staleness": lag})})


class Noted(ChainCollector):
    """Remembers what was played by which version."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, list[str]]] = []

    def collect(self, requests: Sequence[GroupRequest], weights: Weights, version: int, forks: Any) -> Any:
        self.asked.append((version, [r.task for r in requests]))
        return super().collect(requests, weights, version, forks)


@pytest.mark.parametrize(("lag", "versions"), [(0, [0, 1, 2, 3, 4]), (1, [0, 0, 1, 2, 3]), (3, [0, 0, 0, 0, 1])])
def test_an_update_learns_from_the_policy_that_many_versions_back(lag: int, versions: list[int]) -> None:
    played, in_turns = Noted(), Noted()
    loop, _ = chain_loop(job(lag, updates=5), collector=played)
    loop.run()
    chain_loop(job(0, updates=5), collector=in_turns)[0].run()
    assert [version for version, _ in played.asked] == versions
    assert [tasks for _, tasks in played.asked] == [tasks for _, tasks in in_turns.asked]


def _stepped(loop: Loop, count: int) -> list[dict[str, float]]:
    rows = [loop.step() for _ in range(count)]
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in rows]


@pytest.mark.parametrize("kind", ["crr", "grpo", "tree"])
@pytest.mark.parametrize("stop", [1, 4, 7])
def test_a_resumed_run_equals_one_that_never_stopped(kind: str, stop: int) -> None:
    straight, _ = chain_loop(job(2, kind=kind, updates=8))
    rows = _stepped(straight, 8)
    first, _ = chain_loop(job(2, kind=kind, updates=8))
    _stepped(first, stop)
    tree, arrays = encode(first.state_dict())
    again, _ = chain_loop(job(2, kind=kind, updates=8))
    again.load_state_dict(decode(tree, arrays))
    assert _stepped(again, 8 - stop) == rows[stop:]
    assert np.array_equal(weights_of(again), weights_of(straight))


def test_a_longer_job_goes_on_from_the_end_of_a_shorter_one() -> None:
    straight, _ = chain_loop(job(2, updates=8))
    rows = _stepped(straight, 8)
    first, _ = chain_loop(job(2, updates=5))
    _stepped(first, 5)
    again, _ = chain_loop(job(2, updates=8))
    again.load_state_dict(first.state_dict())
    assert _stepped(again, 3) == rows[5:]


def test_playing_goes_on_while_an_update_is_learnt_from() -> None:
    second = threading.Event()

    class Signalling(Noted):
        def collect(self, *asked: Any) -> Any:
            if len(self.asked) == 1:
                second.set()
            return super().collect(*asked)

    loop, _ = chain_loop(job(1, updates=2), collector=Signalling())
    learn = loop.trainer.update

    def update(number: int, experience: Sequence[TaskExperience]) -> dict[str, float]:
        assert number or second.wait(30)
        return learn(number, experience)

    loop.trainer.update = update  # type: ignore[method-assign]
    loop.run()
    assert second.is_set()


def test_what_fails_ahead_ends_the_run_with_its_own_words() -> None:
    class Failing(Noted):
        def collect(self, *asked: Any) -> Any:
            if len(self.asked) == 2:
                raise InfraFailure("the third batch cannot be played")
            return super().collect(*asked)

    loop, rows = chain_loop(job(1, updates=5), collector=Failing())
    with pytest.raises(InfraFailure, match="the third batch cannot be played"):
        loop.run()
    assert [step for step, _ in rows.rows] == [1, 2]


def test_only_one_thing_is_played_at_a_time() -> None:
    running: list[str] = []

    def play(requests: Sequence[GroupRequest], weights: Weights, version: int, how: Any) -> list[str]:
        running.append("groups")
        threading.Event().wait(0.2)
        assert running == ["groups"]
        running.clear()
        return ["played"]

    ahead = Ahead(play, 1)
    assert ahead.take(0, 9, {}, list, lambda _: None) == ["played"]
    assert ahead.alone(lambda: list(running)) == []


def test_weights_are_ratios_up_to_the_cap() -> None:
    now, acted = torch.tensor([0.5, 0.9, 0.1]).log(), torch.tensor([0.25, 0.1, 0.4]).log()
    found = correction(now, acted, 2.5)
    assert found.weights.tolist() == pytest.approx([2.0, 2.5, 0.25])
    assert together([found, found]).metrics() == pytest.approx(
        {"stale/decisions": 6.0, "stale/weight": 4.75 / 3, "stale/truncated": 1 / 3}
    )


def test_weighted_means_over_the_old_policy_are_means_over_the_new_one() -> None:
    now, acted, value = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5]), torch.tensor([1.0, -2.0, 5.0])
    weights = correction(now.log(), acted.log(), 10.0).weights
    assert float((acted * weights * value).sum()) == pytest.approx(float((now * value).sum()))


def test_what_was_played_by_the_policy_itself_is_not_corrected() -> None:
    loop, rows = chain_loop(job(1, updates=3))
    loop.run()
    assert ["stale/decisions" in row for _, row in rows.rows] == [False, True, True]
    assert all(row["stale/decisions"] == row["decisions"] for _, row in rows.rows[1:] if row["decisions"])


def test_the_chain_is_learnt_from_what_is_stale() -> None:
    """In turns, it goes from .13 to .36 of the tasks in as many updates."""
    loop, rows = chain_loop(job(2, updates=40, tasks_per_update=16))
    loop.run()
    resolved = [row["resolved"] for _, row in rows.rows]
    assert np.mean(resolved[:3]) < 0.2
    assert np.mean(resolved[-10:]) > 0.28
