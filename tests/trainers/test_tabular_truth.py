"""On a tiny decision process logged in full, with tables in place of networks, trainers find what is exactly true."""

from typing import Any

import numpy as np
import pytest
from refork.agents.log_policy import head_output
from refork.agents.q_networks import LogNetworks, LogShape
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.config import JobConfig
from refork.trainers.make import make_trainer

GAMMA = 0.8
NEXT = np.array([[1, 2, 0], [2, 0, 1], [0, 3, 3]])
"""(3 states, 3 actions) -> next state; 3 is the end."""
REWARD = np.array([[0.0, 0.3, 0.1], [0.2, 0.0, -0.1], [0.0, 1.0, 0.4]])
COUNTS = np.array([[3, 2, 1], [1, 4, 1], [2, 1, 3]])
"""How often each action was logged in each state."""


def _log() -> Transitions:
    """Every transition is an episode of its own."""
    state, action = (np.repeat(index.ravel(), COUNTS.ravel()) for index in np.indices(COUNTS.shape))
    count = len(state)
    following = NEXT[state, action]
    ended = following == 3
    return Transitions(
        LogSpec("", ObservationSpec("states", 4), ActionSpec("discrete", (3,)), "units"),
        observations=np.stack([state, following], 1).ravel().astype(np.int32),
        actions=action[:, None],
        rewards=REWARD[state, action].astype(np.float32),
        terminated=ended,
        truncated=~ended,
        starts=np.arange(count + 1),
        patients=np.arange(count),
        behaviour=np.full(count, np.nan, np.float32),
        dt=np.ones(count, np.float32),
    )


def _trained(kind: str, **options: Any) -> dict[str, np.ndarray]:
    log = _log()
    shape = LogShape(log.spec, np.zeros(0, np.float32), np.ones(0, np.float32))
    steps = {"updates": 6, "steps_per_update": 400, "batch": 32, "learning_rate": 0.03, "schedule": "linear"}
    job = JobConfig.model_validate(
        {
            "agent": {"kind": "q_networks", "options": {"hidden": []}},
            "trainer": {"kind": kind, "gamma": GAMMA, **steps, **options},
        }
    )
    trainer: Any = make_trainer(job, shape)
    for update in range(job.trainer.updates):
        trainer.update(update, [LoggedExperience("train", log, np.arange(len(log)), 0.0)])
    if kind == "iql":
        return {"v": trainer.networks["v"].acting_arrays("v")["v.table.rows"][0, :3, 0], **trainer.weights()}
    weights: dict[str, np.ndarray] = trainer.weights()
    return weights


def _backup(values: np.ndarray) -> np.ndarray:
    """(3,) -> (3, 3)"""
    return REWARD + GAMMA * np.append(values, 0.0)[NEXT]


def _best_q() -> np.ndarray:
    q = np.zeros((3, 3))
    for _ in range(200):
        q = _backup(q.max(1))
    return q


def _expectile_values(expectile: float) -> np.ndarray:
    """Fixed point of V(s) = expectile over logged actions of r + gamma V(s')."""
    values = np.zeros(3)
    for _ in range(500):
        q = _backup(values)
        for _ in range(100):
            weight = COUNTS * np.where(q < values[:, None], 1 - expectile, expectile)
            values = (weight * q).sum(1) / weight.sum(1)
    return values


def _greedy(weights: dict[str, np.ndarray]) -> list[int]:
    return [int(head_output(weights, "q", 0, np.array([s])).argmax()) for s in range(3)]


def test_cql_without_its_term_finds_the_best_values() -> None:
    weights = _trained("cql", alpha=0.0, target_rate=0.1)
    assert weights["q.table.rows"][0, :3] == pytest.approx(_best_q(), abs=0.02)
    assert _greedy(weights) == _best_q().argmax(1).tolist()


def test_cql_with_a_large_weight_does_what_was_done_most() -> None:
    assert _greedy(_trained("cql", alpha=30.0)) == COUNTS.argmax(1).tolist()


@pytest.mark.parametrize("expectile", [0.5, 0.9])
def test_iql_finds_the_expectile_of_the_logged_actions(expectile: float) -> None:
    found = _trained("iql", expectile=expectile, target_rate=0.1, batch=64)
    assert found["v"] == pytest.approx(_expectile_values(expectile), abs=0.03)


def test_the_expectile_tends_to_the_best_value() -> None:
    """What the test above leads to."""
    gaps = [float(np.abs(_expectile_values(tau) - _best_q().max(1)).max()) for tau in (0.5, 0.9, 0.99, 0.999)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.003


def test_iql_near_one_acts_best() -> None:
    found = _trained("iql", expectile=0.98, target_rate=0.1, beta=20.0, act="best")
    assert found["v"] == pytest.approx(_best_q().max(1), abs=0.05)
    assert _greedy(found) == _best_q().argmax(1).tolist()


def test_bcq_spans_from_the_best_values_to_who_acted() -> None:
    free = _trained("bcq", threshold=0.0, target_rate=0.1)
    assert free["q.table.rows"][0, :3] == pytest.approx(_best_q(), abs=0.02)
    bound = _trained("bcq", threshold=1.0, target_rate=0.1, shrink=0.0)
    assert free["gate_threshold"] == 0.0
    cloned = head_output(bound, "gate", 0, np.arange(3)).argmax(1)
    assert cloned.tolist() == COUNTS.argmax(1).tolist()
    behaviour = np.zeros((3, 3))
    for _ in range(200):
        behaviour = _backup(behaviour[np.arange(3), COUNTS.argmax(1)])
    assert bound["q.table.rows"][0, :3] == pytest.approx(behaviour, abs=0.03)


def test_a_clone_gives_the_logged_frequencies() -> None:
    logits = head_output(_trained("bc"), "logits", 0, np.arange(3))
    odds = np.exp(logits)
    assert odds / odds.sum(1, keepdims=True) == pytest.approx(COUNTS / COUNTS.sum(1, keepdims=True), abs=0.03)


def test_a_table_is_a_head_without_hidden_layers() -> None:
    shape = LogShape(_log().spec, np.zeros(0, np.float32), np.ones(0, np.float32))
    assert LogNetworks(shape, (), seed=0).head(3, 1).acting_arrays("q").keys() >= {"q.table.rows"}
