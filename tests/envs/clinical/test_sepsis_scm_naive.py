"""What a learner that ignores the hidden part finds in unlimited data: right without confounding, misled with it."""

import numpy as np
import pytest
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.clinical.sepsis_scm_naive import naive_policy


def worth(simulator: SepsisScm, policy: np.ndarray) -> float:
    return simulator.truth(lambda states, _allowed: policy[states][:, None]).value


def test_when_nothing_is_hidden_it_is_the_optimal_policy() -> None:
    simulator = SepsisScm(())
    policy = naive_policy(simulator, "random")
    visited = simulator.model.visits(simulator.table("random")).sum(0) > 0
    assert (policy[visited] == simulator.table("optimal")[visited]).all()
    assert worth(simulator, policy) == pytest.approx(0.5614, abs=5e-5)


def test_confounding_misleads_it_the_more_the_stronger() -> None:
    simulators = [SepsisScm(strength=strength) for strength in (1.0, 5.0, 10.0)]
    values = [worth(simulator, naive_policy(simulator, "confounded")) for simulator in simulators]
    assert values == pytest.approx([0.503, 0.395, 0.373], abs=5e-4)


def test_actions_never_taken_are_not_chosen() -> None:
    simulator = SepsisScm(())
    policy = naive_policy(simulator, "optimal")
    visited = simulator.model.visits(simulator.table("optimal")).sum(0) > 0
    assert (policy[visited] == simulator.table("optimal")[visited]).all()
    assert not np.isnan(policy).any()
