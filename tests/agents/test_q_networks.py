"""Heads over logs act in numpy as they answer in torch; options that cannot be are named."""

from typing import Any

import numpy as np
import pytest
import torch
from refork.agents.log_policy import LogPolicy, head_output
from refork.agents.q_networks import LogNetworks, LogShape
from refork.agents.registry import make_network
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

VECTORS, STATES = ObservationSpec("vector", 3), ObservationSpec("states", 5)


def _shape(seen: ObservationSpec, featured: bool = True) -> LogShape:
    spec = LogSpec("", seen, ActionSpec("discrete", (2,)), "units")
    features = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    states = features if seen.kind == "states" and featured else None
    return LogShape(spec, np.full(3, 0.3, np.float32), np.full(3, 2.0, np.float32), states)


@pytest.mark.parametrize("hidden", [(), (7,), (7, 6)])
@pytest.mark.parametrize(
    ("seen", "observe"), [(VECTORS, "states"), (STATES, "states"), (STATES, "features"), (STATES, "both")]
)
def test_what_is_exported_answers_as_the_network(seen: ObservationSpec, observe: str, hidden: tuple[int, ...]) -> None:
    head = LogNetworks(_shape(seen), hidden, observe, seed=0).head(2, seeds=2)
    vectors = np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32)
    rows = vectors if seen.kind == "vector" else np.array([0, 4, 2, 2, 1, 3])
    answers = head(torch.from_numpy(rows).expand(2, *rows.shape)).detach().numpy()
    arrays = head.acting_arrays("q")
    for member in range(2):
        assert head_output(arrays, "q", member, rows) == pytest.approx(answers[member], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": [0]}, "whole numbers of at least 1, got"),
        ({"hidden": [1.5]}, "whole numbers of at least 1, got"),
        ({"hidden": 16}, "not iterable"),
        ({"observe": "all"}, "states, features or both, got 'all'"),
        ({"observe": "both"}, "no features of its states"),
        ({"depth": 2}, "depth"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_network("q_networks", _shape(STATES, featured=False), options, seed=0)


SPEC = LogSpec("", STATES, ActionSpec("discrete", (3,)), "units")
TABLES = {
    "q.table.rows": np.array([[[1.0, 3.0, 9.0]]]),
    "gate.table.rows": np.log([[[0.6, 0.3, 0.1]]]),
    "gate_threshold": np.array(0.3),
}


@pytest.mark.parametrize(
    ("allowed", "best"), [([True, True, True], 1), ([True, False, True], 0), ([False, True, True], 2)]
)
def test_a_gate_keeps_to_actions_of_a_share_of_the_likeliest_allowed_one(allowed: list[bool], best: int) -> None:
    found = LogPolicy(SPEC, TABLES, 1).member(0)(np.zeros(1, np.int64), np.array([[allowed]]))
    assert found.tolist() == [[np.eye(3)[best].tolist()]]


def test_no_action_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="no action"):
        LogPolicy(SPEC, TABLES, 1).member(0)(np.zeros(1, np.int64), np.zeros((1, 1, 3), bool))
