"""What each decision maker sees of a minibatch."""

import numpy as np
import pytest
import torch
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.trainers.agent_batch import by_agent, to_unit
from refork.trainers.log_batch import Batch


def _batch(observations: torch.Tensor, allowed: torch.Tensor | None = None) -> Batch:
    """Two seeds, one transition, two decision makers."""
    rows = torch.tensor([[0.0], [1.0]])
    numbers = torch.zeros(2, 1, dtype=torch.int64)
    actions = torch.tensor([[[0, 1]], [[1, 2]]])
    both = torch.cat([observations, observations + 1], 1)
    parts = both[:, :1], actions, rows, both[:, 1:], rows + 0.5, allowed, allowed, numbers, numbers + 1, both
    return Batch(*parts)


def _spec(per_agent: bool, sizes: tuple[int, ...] = (3, 3)) -> LogSpec:
    return LogSpec("", ObservationSpec("vector", 1, per_agent=per_agent), ActionSpec("discrete", sizes), "units")


def test_members_are_seed_major_and_share_the_teams_reward() -> None:
    own = torch.tensor([[[[10.0], [11.0]]], [[[20.0], [21.0]]]])  # (S, B, n, 1)
    found = by_agent(_batch(own), _spec(per_agent=True))
    assert found.observations.flatten().tolist() == [10, 11, 20, 21]
    assert found.next_observations.flatten().tolist() == [11, 12, 21, 22]
    assert found.actions.flatten().tolist() == [0, 1, 1, 2]
    assert found.rewards.flatten().tolist() == [0, 0, 1, 1]
    assert found.discounts.flatten().tolist() == [0.5, 0.5, 1.5, 1.5]
    assert found.allowed is None


def test_a_shared_observation_is_seen_by_all() -> None:
    found = by_agent(_batch(torch.tensor([[[10.0]], [[20.0]]])), _spec(per_agent=False))
    assert found.observations.flatten().tolist() == [10, 10, 20, 20]


def test_actions_beyond_an_own_number_are_never_allowed() -> None:
    shared = torch.tensor([[[10.0]], [[20.0]]])
    spec = _spec(per_agent=False, sizes=(2, 3))
    found = by_agent(_batch(shared), spec)
    assert found.allowed is not None
    assert found.allowed[:, 0].tolist() == [[True, True, False], [True, True, True]] * 2
    given = torch.tensor([[[[True, True, True], [False, True, True]]]]).expand(2, 1, 2, 3)
    found = by_agent(_batch(shared, given), spec)
    assert found.next_allowed is not None
    assert found.next_allowed[:, 0].tolist() == [[True, True, False], [False, True, True]] * 2


def test_continuous_actions_are_scaled_to_one() -> None:
    action = ActionSpec("continuous", (3,), low=(0.0, -2.0, 1.0), high=(4.0, 2.0, 1.0))
    found = to_unit(torch.tensor([[1.0, 2.0, 1.0], [9.0, 0.0, 1.0]]), action)
    assert found.numpy() == pytest.approx(np.array([[-0.5, 1, -1], [1, 0, -1]]))
