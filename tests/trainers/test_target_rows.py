"""A target that stands still is asked once for every row of the log."""

from typing import Any

import numpy as np
import pytest
import torch
from refork.agents.q_networks import LogNetworks
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import Transitions
from refork.trainers.log_batch import LogTensors
from refork.trainers.offline_config import ValueConfig
from refork.trainers.target_rows import TargetRows

from tests.trainers.logs import log_for, shape_of

ROWS = 2 * 7


class _Config(ValueConfig):
    kind: str = "any"


def _log(per_agent: bool) -> Transitions:
    """Two episodes of six steps, three decision makers."""
    log = log_for("factored discrete", episodes=2)
    if not per_agent:
        return log
    own = np.random.default_rng(0).normal(size=(ROWS, 3, 3)).astype(np.float32)
    spec = LogSpec("", ObservationSpec("vector", 3, per_agent=True), ActionSpec("discrete", (4, 4, 4)), "units")
    return Transitions(**{**vars(log), "spec": spec, "observations": own})


def _made(log: Transitions, **settings: Any) -> tuple[TargetRows, torch.nn.Module, LogTensors]:
    head = LogNetworks(shape_of(log), (5,), seed=0).head(4, seeds=2, copies=3)
    config = _Config.model_validate({"target_rate": 1.0, "target_every": 4, "batch": 4, **settings})
    return TargetRows(head, log.spec, config), head, LogTensors(log, 0.9)


@pytest.mark.parametrize("per_agent", [False, True])
def test_the_answers_are_the_networks(per_agent: bool) -> None:
    log = _log(per_agent)
    table, head, tensors = _made(log)
    rows = torch.randint(ROWS, (6, 5))
    found = table.at(rows, tensors)
    assert found is not None
    seen = tensors.observations[rows]
    if per_agent:
        seen = torch.stack([seen[k, :, k % 3] for k in range(6)])
    assert found.numpy() == pytest.approx(head(seen).detach().numpy(), abs=1e-6)


def test_they_are_asked_again_when_it_has_moved() -> None:
    table, head, tensors = _made(_log(False))
    rows = torch.zeros((6, 1), dtype=torch.int64)
    before = table.at(rows, tensors)
    assert before is not None
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 1
    assert torch.equal(table.at(rows, tensors), before)  # type: ignore[arg-type]
    table.moved()
    assert not torch.equal(table.at(rows, tensors), before)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"target_rate": 0.5}, {"target_every": 3}])
def test_a_target_that_moves_often_is_asked_each_time(settings: dict[str, Any]) -> None:
    table, _, tensors = _made(_log(False), **settings)
    assert table.at(torch.zeros((6, 1), dtype=torch.int64), tensors) is None
