"""The gradients of a head's pass are those of the automatic derivative, for every kind of head."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from refork.agents.head_pass import HeadPass
from refork.agents.q_networks import LogNetworks, LogShape
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

MEMBERS, ROWS, LEARNT = 4, 6, 4
VECTORS = ObservationSpec("vector", 3)
STATES = ObservationSpec("states", 5)
HEADS = [
    (VECTORS, "states", ()),
    (VECTORS, "states", (7, 6)),
    (STATES, "states", ()),
    (STATES, "states", (7,)),
    (STATES, "features", (7,)),
    (STATES, "both", (7, 6)),
]


def _shape(seen: ObservationSpec) -> LogShape:
    spec = LogSpec("", seen, ActionSpec("discrete", (2,)), "units")
    features = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    shape = LogShape(spec, np.full(3, 0.3, np.float32), np.full(3, 2.0, np.float32))
    return replace(shape, state_features=features) if seen.kind == "states" else shape


@pytest.mark.parametrize(("seen", "observe", "hidden"), HEADS)
def test_answers_and_gradients_are_those_of_the_automatic_derivative(
    seen: ObservationSpec, observe: str, hidden: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    head = LogNetworks(_shape(seen), hidden, observe, seed=0).head(2, seeds=2, copies=2).double()
    vectors = torch.randn(MEMBERS, ROWS, 3).double()
    observations = vectors if seen.kind == "vector" else torch.randint(5, (MEMBERS, ROWS))
    passed = HeadPass(head, observations, graded=LEARNT)
    whole = head(observations)
    assert torch.equal(passed.answers, whole[:, :LEARNT])
    assert torch.equal(passed.others, whole[:, LEARNT:])
    assert not passed.others.requires_grad

    found = {p: torch.full_like(p, torch.nan) for p in head.parameters()}
    (gradient,) = torch.autograd.grad(passed.answers.square().sum(), passed.answers)
    passed.back(gradient, found)
    expected = torch.autograd.grad(whole[:, :LEARNT].square().sum(), list(head.parameters()))
    for parameter, right in zip(head.parameters(), expected, strict=True):
        assert found[parameter].numpy() == pytest.approx(right.numpy(), abs=1e-12)


def test_without_a_number_all_are_learnt_from() -> None:
    head = LogNetworks(_shape(VECTORS), (4,), seed=0).head(2, seeds=1)
    passed = HeadPass(head, torch.randn(1, 3, 3))
    assert passed.answers.shape == (1, 3, 2)
    assert passed.others.shape == (1, 0, 2)
