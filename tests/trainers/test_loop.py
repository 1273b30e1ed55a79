"""The loop: learns on the chain, resumes to the bit, stalls loudly, sets broken tasks aside."""

import copy
import io
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from refork.trainers.loop import Loop

from tests.trainers.chain_run import chain_job, chain_loop, weights_of


def _through_disk(state: dict) -> dict:
    """What a checkpoint may hold: tensors and plain values, read back in the safe mode."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def _steps(loop: Loop, count: int) -> None:
    for _ in range(count):
        loop.step()


@pytest.mark.parametrize("kind", ["crr", "grpo"])
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
