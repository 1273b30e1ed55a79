"""ICU-Sepsis: the package's tables, exact values, logs."""

import numpy as np
import pytest
from refork.envs.clinical.icu_sepsis import DEATH, SURVIVAL, IcuSepsis, exact_value, optimal_policy, tables
from refork.envs.forkable import BadInput


@pytest.mark.parametrize(("name", "value"), [("random", 0.78007), ("expert", 0.78184), ("optimal", 0.87514)])
def test_values_are_the_known_ones(name: str, value: float) -> None:
    simulator = IcuSepsis()
    act = simulator.policy(name)
    assert act is not None
    assert simulator.truth(act).value == pytest.approx(value, abs=5e-6)


def test_the_optimal_policy_beats_every_one_step_change() -> None:
    best = exact_value(optimal_policy())
    changed = optimal_policy().copy()
    changed[:100] = 1 / 25
    assert exact_value(changed) < best


def test_a_log_is_contiguous_and_says_how_it_ended() -> None:
    log = IcuSepsis().log("expert", 200, 3)
    assert len(log.observations) == len(log.rewards) + 200
    assert log.terminated.sum() == 200
    assert log.terminated[log.starts[1:] - 1].all()
    last = log.observations[log.starts[1:] + np.arange(200)]
    assert (last >= DEATH).all()
    assert ((last == SURVIVAL) == (log.rewards[log.starts[1:] - 1] == 1)).all()
    rows = np.arange(len(log.rewards)) + np.repeat(np.arange(200), np.diff(log.starts))
    assert log.behaviour == pytest.approx(tables().expert[log.observations[rows], log.actions[:, 0]])
    assert (log.behaviour > 0).all()


def test_the_mean_return_of_a_log_is_its_policys_value() -> None:
    log = IcuSepsis().log("random", 20_000, 0)
    assert log.rewards.sum() / 20_000 == pytest.approx(0.78007, abs=4 * np.sqrt(0.78 * 0.22 / 20_000))


def test_an_unknown_behaviour_names_those_there_are() -> None:
    with pytest.raises(BadInput, match="expert, random, optimal"):
        IcuSepsis().log("best", 1, 0)
