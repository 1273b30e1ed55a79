"""What every trainer of logs keeps, for each kind of action it takes: the contract, parametrised over all."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from refork.agents.log_policy import LogPolicy
from refork.envs.forkable import BadInput
from refork.replay.transitions import Transitions
from refork.trainers.config import JobConfig, algorithms, trainer_config_class
from refork.trainers.loop import Diverged
from refork.trainers.make import make_trainer

from tests.trainers.logs import experience_of, log_for, shape_of

KINDS = [kind for kind in algorithms() if trainer_config_class(kind).learns_from == "logs"]
CASES = [(kind, actions) for kind in KINDS for actions in trainer_config_class(kind).takes]  # type: ignore[attr-defined]
ALL = ("discrete", "continuous", "factored discrete", "factored continuous")


def _log(kind: str, actions: str) -> Transitions:
    return log_for(actions, observes=trainer_config_class(kind).observes[0])  # type: ignore[attr-defined]


def _trainer(kind: str, actions: str, seeds: int = 1, seed: int = 0, **settings: Any) -> Any:
    trainer = {"kind": kind, "seeds": seeds, "steps_per_update": 4, "batch": 8, "learning_rate": 0.01, **settings}
    job = JobConfig.model_validate(
        {
            "seed": seed,
            "env": {"id": "refork/Logs-v0"},
            "agent": {"kind": "q_networks", "options": {"hidden": [16, 16]}},
            "trainer": trainer,
        }
    )
    return make_trainer(job, shape_of(_log(kind, actions)))


def _weights_after(trainer: Any, actions: str, updates: range) -> dict[str, np.ndarray]:
    logged = experience_of(_log(trainer.config.kind, actions))
    for update in updates:
        trainer.update(update, [logged])
    return trainer.weights()


@pytest.mark.parametrize(("kind", "actions"), CASES)
def test_training_changes_the_acting_weights_and_reports_finite_numbers(kind: str, actions: str) -> None:
    trainer = _trainer(kind, actions, seeds=2)
    before = {name: array.copy() for name, array in trainer.weights().items()}
    metrics = trainer.update(0, [experience_of(_log(kind, actions))])
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["steps"] > 0
    after = trainer.weights()
    assert before.keys() == after.keys()
    assert any(not np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("kind", "actions"), CASES)
def test_resuming_equals_never_having_stopped(kind: str, actions: str) -> None:
    whole = _trainer(kind, actions, seeds=2)
    straight = _weights_after(whole, actions, range(3))
    first = _trainer(kind, actions, seeds=2)
    _weights_after(first, actions, range(2))
    second = _trainer(kind, actions, seeds=2)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed = _weights_after(second, actions, range(2, 3))
    assert straight.keys() == resumed.keys()
    assert all(np.array_equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize(("kind", "actions"), CASES)
def test_a_member_of_a_stack_learns_what_it_learns_alone(kind: str, actions: str) -> None:
    """The first member has the run's own seed."""
    torch.set_num_threads(1)
    log = _log(kind, actions)
    observations = np.asarray(log.observations[:20])
    acts = []
    for seeds in (1, 3):
        weights = _weights_after(_trainer(kind, actions, seeds), actions, range(2))
        acts.append(LogPolicy(log.spec, weights, seeds).member(0)(observations))
    assert acts[0] == pytest.approx(acts[1], abs=1e-4)


@pytest.mark.parametrize(("kind", "actions"), CASES)
def test_what_was_learnt_acts_within_bounds(kind: str, actions: str) -> None:
    log = _log(kind, actions)
    policy = LogPolicy(log.spec, _weights_after(_trainer(kind, actions, 2), actions, range(1)), 2)
    for seed in range(2):
        found = policy.member(seed)(np.asarray(log.observations[:20]))
        assert found.shape == (20, log.spec.action.agents, log.spec.action.width)
        if log.spec.action.kind == "discrete":
            assert found.sum(-1) == pytest.approx(1)
            assert (found >= 0).all()
        else:
            assert (found >= np.array(log.spec.action.low)).all()
            assert (found <= np.array(log.spec.action.high)).all()


@pytest.mark.parametrize(("kind", "actions"), [(k, a) for k in KINDS for a in ALL if (k, a) not in CASES])
def test_actions_it_cannot_learn_from_are_named(kind: str, actions: str) -> None:
    with pytest.raises(BadInput, match=f"{kind} learns from"):
        _trainer(kind, actions)


@pytest.mark.parametrize("kind", ["cql", "bcq"])
def test_a_hard_target_kept_by_rows_is_the_target_itself(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied every 60 steps of 8 transitions, from a log of 210 rows, across a copy and a resume."""
    settings = {"target_rate": 1.0, "target_every": 60, "steps_per_update": 40}
    kept = _weights_after(_trainer(kind, "discrete", 2, **settings), "discrete", range(3))
    first = _trainer(kind, "discrete", 2, **settings)
    _weights_after(first, "discrete", range(2))
    second = _trainer(kind, "discrete", 2, **settings)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    resumed = _weights_after(second, "discrete", range(2, 3))
    monkeypatch.setattr("refork.trainers.target_rows.LARGEST", 0)
    asked = _weights_after(_trainer(kind, "discrete", 2, **settings), "discrete", range(3))
    for name, array in kept.items():
        assert np.array_equal(resumed[name], array)
        assert asked[name] == pytest.approx(array, abs=1e-4)


def test_a_training_that_diverges_names_the_seed_and_the_remedy() -> None:
    trainer = _trainer("cql", "factored discrete", seeds=3)
    with torch.no_grad():
        next(trainer.networks["q"].parameters())[3 * 2] = torch.nan  # the first decision maker of the last seed
    message = r"update 4: loss/q/total of seed 2 is nan; lower trainer\.learning_rate"
    with pytest.raises(Diverged, match=message):
        trainer.update(4, [experience_of(log_for("factored discrete"))])


def test_a_checkpoint_of_another_version_is_named() -> None:
    trainer = _trainer("cql", "discrete")
    state = {name: part for name, part in trainer.state_dict().items() if name != "done"}
    with pytest.raises(BadInput, match="no 'done': another version"):
        trainer.load_state_dict(state)
