"""Two learners that share the work make the update of one, for every trainer."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from refork.envs.forkable import BadInput
from refork.trainers.ranks import Alone, own_rows
from torch import Tensor

from tests.trainers.chain_run import chain_job, chain_loop
from tests.trainers.pmd.bandit import make_trainer as game_trainer
from tests.trainers.pmd.bandit import play
from tests.trainers.test_offline import CASES, _log, _trainer, experience_of

MAKING = threading.Lock()
"""Networks of games are drawn from torch's global generator."""


@dataclass
class Meeting:
    """Where ranks, a thread each, add up."""

    size: int
    barrier: threading.Barrier = field(init=False)
    brought: dict[int, list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.size, timeout=60)


@dataclass(frozen=True)
class Thread:
    """One rank of a meeting."""

    meeting: Meeting
    rank: int

    @property
    def size(self) -> int:
        return self.meeting.size

    def add(self, tensors: Sequence[Tensor]) -> None:
        meeting = self.meeting
        meeting.brought[self.rank] = [t.clone() for t in tensors]
        meeting.barrier.wait()
        for k, tensor in enumerate(tensors):
            tensor.copy_(torch.stack([meeting.brought[r][k] for r in range(self.size)]).sum(0))
        meeting.barrier.wait()


def together(size: int, work: Callable[[Any], Any]) -> list[Any]:
    """What `work(ranks)` gives each of `size` ranks."""
    meeting, found, failed = Meeting(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            found[rank] = work(Thread(meeting, rank))
        except BaseException as error:
            failed.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


def _assert_close(one: Any, other: Any, tolerance: float) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            _assert_close(one[name], other[name], tolerance)
    else:
        np.testing.assert_allclose(other, one, atol=tolerance, rtol=tolerance)


def _assert_same(work: Callable[[Any], tuple[dict[str, Any], dict[str, float]]], tolerance: float = 2e-5) -> None:
    """Weights and metrics, on every one of two and of three ranks."""
    alone = work(Alone())
    for size in (2, 3):
        for found in together(size, work):
            for one, other in zip(alone, found, strict=True):
                _assert_close(one, other, tolerance)


@pytest.mark.parametrize(("kind", "actions"), CASES)
def test_trainers_of_logs(kind: str, actions: str) -> None:
    def work(ranks: Any) -> Any:
        trainer = _trainer(kind, actions, seeds=2, learning_rate=1e-3)
        trainer.ranks = ranks
        rows = [trainer.update(update, [experience_of(_log(kind, actions))]) for update in range(2)]
        return trainer.weights(), rows[-1]

    _assert_same(work)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "crr", "kl": 0.1, "entropy_bonus": 0.01},
        {"kind": "crr", "minibatch": 5, "epochs": 2},
        {"kind": "crr", "minibatch": 1},  # less than there are ranks
        {"kind": "grpo"},
        {"kind": "grpo", "aggregate": "rollouts"},
    ],
)
def test_policy_gradients(settings: dict[str, Any]) -> None:
    def work(ranks: Any) -> Any:
        with MAKING:
            loop, _ = chain_loop(chain_job(**settings, learning_rate=0.05))
        loop.trainer.ranks = ranks
        rows = [loop.step() for _ in range(2)]
        kept = {name: value for name, value in rows[-1].items() if "seconds" not in name}
        return loop.trainer.weights(), kept

    _assert_same(work)


@pytest.mark.parametrize(("update", "size_of_minibatch"), [("pmd", 0), ("pmd", 2), ("mappo", 0)])
def test_games(update: str, size_of_minibatch: int) -> None:
    def work(ranks: Any) -> Any:
        with MAKING:
            trainer = game_trainer(update=update, minibatch=size_of_minibatch, epochs=2)
            mixed = [play(trainer, 0, [(4, 4)] * 3), play(trainer, 1, [(7, 5), (3, 5)]), play(trainer, 2, [(4, 4)])]
        trainer.ranks = ranks
        # Adam's first steps are of the size of the rate whatever the gradient: where that is 0, they follow rounding
        trainer.optimiser = torch.optim.SGD([{"params": g["params"]} for g in trainer.optimiser.param_groups], lr=0.1)
        row = trainer.update(0, mixed)
        return trainer.weights(), row

    _assert_same(work)


def test_every_row_is_exactly_one_ranks() -> None:
    dealt = [own_rows(Thread(Meeting(3), rank), 8).tolist() for rank in range(3)]
    assert sorted(row for rows in dealt for row in rows) == list(range(8))
    assert max(map(len, dealt)) - min(map(len, dealt)) == 1


def test_a_minibatch_that_is_too_small_to_deal_is_named() -> None:
    def work(ranks: Any) -> None:
        trainer = _trainer("cql", "discrete", batch=2)
        trainer.ranks = ranks
        trainer.update(0, [experience_of(_log("cql", "discrete"))])

    with pytest.raises(BadInput, match=r"trainer\.batch: 2 transitions cannot be dealt to 3 learners"):
        together(3, work)
