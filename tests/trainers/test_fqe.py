"""Fitted Q evaluation against exact values, and what it refuses."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from refork.envs.clinical.icu_sepsis import IcuSepsis
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import Transitions, of
from refork.trainers import fqe
from refork.trainers.behaviour_model import fit_behaviour
from refork.trainers.fqe_stack import NetworkSettings
from refork.trainers.joint_actions import JointActions

from tests.trainers.logs import log_for

EXACT = {"random": 0.78007, "expert": 0.78184, "optimal": 0.87514}


@cache
def sepsis_log(episodes: int, behaviour: str = "random") -> Transitions:
    return of(IcuSepsis().log(behaviour, episodes, 0))


def sepsis_acts() -> list[Act]:
    return [IcuSepsis().policy(name) for name in EXACT]


def corridor(gamma_steps: int = 3, episodes: int = 50) -> Transitions:
    """States 0, 1, 2 one after the other, then the end; action 1 pays 1, action 0 nothing; taken by turns."""
    count = episodes * gamma_steps
    step = np.arange(count) % gamma_steps
    actions = (np.arange(count) // gamma_steps + step) % 2
    return Transitions(
        LogSpec("", ObservationSpec("states", 4), ActionSpec("discrete", (2,)), "units"),
        observations=np.tile(np.arange(gamma_steps + 1, dtype=np.int32), episodes),
        actions=actions[:, None],
        rewards=actions.astype(np.float32),
        terminated=step == gamma_steps - 1,
        truncated=np.zeros(count, bool),
        starts=np.arange(episodes + 1) * gamma_steps,
        patients=np.arange(episodes),
        behaviour=np.full(count, 0.5, np.float32),
        dt=np.ones(count, np.float32),
    )


def always(action: int, actions: int = 2) -> Act:
    return lambda observations, _: np.tile(np.eye(actions)[action], (len(observations), 1, 1))


def test_tables_are_near_the_exact_values_of_icu_sepsis() -> None:
    found = fqe.evaluate(sepsis_log(10_000), sepsis_acts(), 1.0, method="table")
    assert [f.value for f in found] == pytest.approx(list(EXACT.values()), abs=0.035)
    assert all(f.converged and f.in_bounds and f.held_out and abs(f.td_mean) < 0.003 for f in found)


def test_wrong_next_observations_are_far_from_the_exact_values() -> None:
    """What d3rlpy 93 did: the check against an exact value would have shown it."""
    log = sepsis_log(10_000)
    observations = log.observations.copy()
    later = np.flatnonzero(~log.terminated)
    rows = log.rows(later) + 1
    shuffled = np.random.default_rng(0).permutation(rows)
    observations[rows] = log.observations[shuffled]
    found = fqe.evaluate(replace(log, observations=observations), sepsis_acts(), 1.0, method="table")
    assert abs(found[2].value - EXACT["optimal"]) > 0.07


def test_networks_are_near_the_exact_values_of_icu_sepsis() -> None:
    torch.set_num_threads(1)
    settings = NetworkSettings(steps=500, target_rate=0.2, learning_rate=0.003)
    found = fqe.evaluate(
        sepsis_log(5_000, "expert"), sepsis_acts()[1:], 1.0, method="network", folds=1, network=settings
    )
    assert found[0].value == pytest.approx(EXACT["expert"], abs=0.02)
    assert found[1].value > found[0].value


@pytest.mark.parametrize("method", ["table", "network"])
def test_gamma_and_the_end_are_as_declared(method: str) -> None:
    settings = NetworkSettings(steps=300, learning_rate=0.01, target_rate=0.3)
    found = fqe.evaluate(corridor(), [always(1), always(0)], 0.5, method=method, network=settings)
    assert found[0].value == pytest.approx(1.75, abs=0.1)  # 1 + .5 + .25
    assert found[1].value == pytest.approx(0.0, abs=0.1)


def test_a_horizon_is_that_many_steps_even_where_the_log_was_cut() -> None:
    log = corridor()
    cut = replace(log, terminated=np.zeros(len(log), bool), truncated=log.terminated)
    for horizon in (2, 3):
        limited = replace(cut, spec=replace(log.spec, horizon=horizon))
        assert fqe.evaluate(limited, [always(1)], 1.0, folds=1)[0].value == pytest.approx(horizon, abs=0.15)


def test_returns_between_rows_further_apart_are_discounted_more() -> None:
    log = replace(corridor(), dt=np.full(150, 2.0, np.float32))
    assert fqe.evaluate(log, [always(1)], 0.5, folds=1)[0].value == pytest.approx(1 + 0.25 + 0.0625, abs=0.1)


def test_values_that_grow_past_what_they_can_be_are_told() -> None:
    log = corridor()
    found = fqe.evaluate(log, [always(1)], 1.0, folds=1)[0]
    assert found.in_bounds
    assert found.bounds == (0.0, 3.0)
    assert not replace(found, highest=3.4).in_bounds


def test_what_a_network_makes_up_does_not_feed_on_itself() -> None:
    """A corridor that leads back to its start and never ends: bootstrapped freely, its value grows without end."""
    log = corridor()
    endless = replace(
        log, observations=log.observations % 3, terminated=np.zeros(len(log), bool), truncated=log.terminated
    )
    settings = NetworkSettings(steps=300, learning_rate=0.05, target_rate=1.0)
    found = fqe.evaluate(endless, [always(1)], 1.0, method="network", folds=1, network=settings)[0]
    assert found.value == pytest.approx(3.0, abs=0.3)  # returns to go of at most 2, and half of that


def test_refitted_intervals_have_in_them_who_was_in_the_log() -> None:
    """Everybody starts alike, so an interval over starts alone has no width; the log's rewards are noisy."""
    log = corridor(episodes=40)
    noisy = replace(log, rewards=log.rewards + np.random.default_rng(0).normal(size=len(log)).astype(np.float32))
    found = fqe.evaluate(noisy, [always(1)], 1.0, folds=1, resamples=200)[0]
    assert np.ptp(found.starts) == 0
    assert found.resampled is not None
    # three means of 20 rewards of unit variance each
    assert found.resampled.std() == pytest.approx((3 / 20) ** 0.5, rel=0.25)
    assert found.resampled.mean() == pytest.approx(found.value, abs=0.1)


def test_several_decision_makers_are_one_joint_action() -> None:
    joint = JointActions(ActionSpec("discrete", (2, 3)))
    each = np.array([[[0.25, 0.75, 0.0], [0.5, 0.3, 0.2]]])
    assert joint.probabilities(each)[0] == pytest.approx([0.125, 0.075, 0.05, 0.375, 0.225, 0.15])
    assert joint.numbers(np.array([[1, 2]])) == [5]
    assert joint.vectors(np.array([[1, 2]])).tolist() == [[0, 1, 0, 0, 1]]


def test_what_is_not_defined_is_said_with_its_reason() -> None:
    assert fqe.undefined(log_for("factored continuous")) == dict.fromkeys(fqe.REGRESSORS, "continuous actions")
    assert fqe.undefined(log_for("discrete")) == dict.fromkeys(("table", "shrunk table"), "observations are not states")
    with pytest.raises(BadInput, match="by tree: not defined for this log: continuous actions"):
        fqe.evaluate(log_for("continuous"), [], 0.9, method="tree")
    with pytest.raises(BadInput, match="no method 'forest'"):
        fqe.evaluate(log_for("continuous"), [], 0.9, method="forest")


@pytest.mark.parametrize("actions", ["discrete", "continuous", "factored discrete", "factored continuous"])
def test_networks_evaluate_every_kind_of_action(actions: str) -> None:
    log = log_for(actions)
    agents, width = log.spec.action.agents, log.spec.action.width

    def act(observations: np.ndarray, _: np.ndarray | None) -> np.ndarray:
        shape = (len(observations), agents, width)
        return np.full(shape, 1 / width) if actions.endswith("discrete") else np.zeros(shape)

    found = fqe.evaluate(log, [act], 0.9, method="network", network=NetworkSettings(steps=20))[0]
    assert found.starts.shape == (log.episodes,)
    assert np.isfinite([found.value, found.td_rms]).all()


def test_a_log_of_as_many_rows_as_there_are_states_is_still_one_of_states() -> None:
    log = corridor(episodes=5)
    as_many = replace(log, spec=replace(log.spec, observation=ObservationSpec("states", len(log.observations))))
    assert set(fqe.undefined(as_many)) == {"linear"}
    assert fit_behaviour(as_many).kind == "cross-fitted smoothed shares of actions in each state"
