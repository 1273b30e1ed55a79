"""Planning on counts against values worked out by hand, and on a small world whose truth is known."""

import numpy as np
import pytest
from refork.agents.q_networks import LogNetworks
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import Transitions
from refork.trainers.pvi.config import AlgorithmConfig
from refork.trainers.pvi.counts import count, shrunk_values
from refork.trainers.pvi.shrinkage import choose_shrinkage
from refork.trainers.pvi.trainer import Trainer

from tests.trainers.logs import experience_of, shape_of


def _log(episodes: list[list[tuple[int, int, float, int]]]) -> Transitions:
    """Episodes of (state, action, reward, next state); each terminates in its last step. Two states, two actions."""
    steps = [step for episode in episodes for step in episode]
    lengths = [len(episode) for episode in episodes]
    ends = np.cumsum(lengths)
    rows = [row for episode in episodes for row in [*(step[0] for step in episode), episode[-1][3]]]
    return Transitions(
        LogSpec("", ObservationSpec("states", 2), ActionSpec("discrete", (2,)), "units"),
        observations=np.array(rows, np.int32),
        actions=np.array([[step[1]] for step in steps]),
        rewards=np.array([step[2] for step in steps], np.float32),
        terminated=np.isin(np.arange(len(steps)), ends - 1),
        truncated=np.zeros(len(steps), bool),
        starts=np.array([0, *ends]),
        patients=np.arange(len(episodes)),
        behaviour=np.full(len(steps), 0.5, np.float32),
        dt=np.ones(len(steps), np.float32),
    )


SMALL = _log([[(0, 0, 0.0, 1), (1, 0, 1.0, 1)], [(0, 1, 0.0, 1), (1, 1, 3.0, 1)], [(0, 0, 2.0, 0)]])


def _trained(log: Transitions, **options: object) -> np.ndarray:
    config = AlgorithmConfig.model_validate({"gamma": 0.5, "updates": 1, **options})
    trainer = Trainer(config, LogNetworks(shape_of(log), hidden=[4], seed=0), 0)
    trainer.update(0, [experience_of(log)])
    return trainer.weights()["q.table.rows"][0]


def test_without_shrinkage_it_is_value_iteration_on_what_was_counted() -> None:
    q = _trained(SMALL, shrinkage=0.0, prior=0.0)
    assert q[1].tolist() == [1.0, 3.0]
    assert q[0].tolist() == [(0.5 * 3.0 + 2.0) / 2, 0.5 * 3.0]


def test_shrinkage_draws_an_action_to_its_states_mean() -> None:
    counts = count(SMALL, np.arange(len(SMALL)), 0.5)
    q = shrunk_values(counts, np.array([0.0, 2.0]), shrinkage=1.0, prior=0.0)
    of_state = (1.0 + 1.0 + 2.0) / 3
    assert q[0] == pytest.approx([(1.0 + 2.0 + of_state) / 3, (1.0 + of_state) / 2])


def test_a_penalty_falls_with_the_root_of_the_count() -> None:
    plain, lower = (_trained(SMALL, shrinkage=0.0, prior=0.0, steps_per_update=1, penalty=p) for p in (0.0, 0.3))
    assert (plain - lower)[0] == pytest.approx([0.3 / np.sqrt(2), 0.3])


def test_an_action_seen_too_seldom_is_not_taken_unless_all_are() -> None:
    q = _trained(SMALL, shrinkage=0.0, prior=0.0, min_count=2)
    assert q[0].argmax() == 0
    assert q[1].argmax() == 1


def test_little_is_shrunk_where_actions_differ_and_much_where_they_do_not() -> None:
    actions, noise = np.arange(600) % 2, np.repeat(np.random.default_rng(0).normal(size=300), 2)
    differ = _log([[(0, a, 5.0 * a + e, 1)] for a, e in zip(actions, noise, strict=True)])
    same = _log([[(0, a, e, 1)] for a, e in zip(actions, noise, strict=True)])
    found = [choose_shrinkage(log, np.arange(600), 1.0, 1.0, 50) for log in (differ, same)]
    assert found == [10.0, 1000.0]
