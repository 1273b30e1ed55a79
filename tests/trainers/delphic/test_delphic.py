"""Worlds on a clinic whose confounding is known."""

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from refork.agents.q_networks import LogShape
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ObservationSpec
from refork.trainers.config import JobConfig
from refork.trainers.delphic.episodes import Episodes
from refork.trainers.delphic.trainer import Trainer
from refork.trainers.make import make_trainer

from tests.trainers.delphic.confounded import log_of, naive_gap
from tests.trainers.logs import experience_of, log_for, shape_of


def _made(log: object, **options: object) -> Trainer:
    section = {"kind": "delphic", "steps_per_update": 150, "batch": 64, "gamma": 0.01, "alpha": 0.0}
    section |= {
        "world_hidden": [16],
        "learning_rate": 0.01,
        "tolerance": 0.5,
        "worlds": ["classes-1", "classes-2", "classes-2"],
    }
    agent = {"kind": "q_networks", "options": {"hidden": [16]}}
    job = {"env": {"id": "refork/Logs-v0"}, "agent": agent, "trainer": section | options}
    trainer = make_trainer(JobConfig.model_validate(job), shape_of(log))  # type: ignore[arg-type]
    assert isinstance(trainer, Trainer)
    return trainer


@cache
def _trained(gamma: float) -> tuple[Trainer, dict[str, float]]:
    torch.set_num_threads(1)
    trainer = _made(log_of(gamma, 300))
    return trainer, trainer.update(0, [experience_of(log_of(gamma, 300))])


def test_the_log_prefers_the_wrong_action() -> None:
    assert naive_gap(5.0) > 0.1
    assert naive_gap(1.0) == pytest.approx(-0.1)


def test_worlds_disagree_about_confounded_values_and_not_about_others() -> None:
    """Without a confounder action 1 seems worth .133 more, and action 0 as much less, than with it."""
    confounded, control = _trained(5.0)[1], _trained(1.0)[1]
    assert confounded["worlds/compatible"] == control["worlds/compatible"] == 3
    # a third of the worlds is .133 away from the others
    assert confounded["worlds/delphic"] == pytest.approx(0.133**2 * 2 / 9, rel=0.4)
    assert control["worlds/delphic"] < 0.03 * confounded["worlds/delphic"]
    assert confounded["worlds/epistemic"] < 0.2 * confounded["worlds/delphic"]


@pytest.mark.parametrize(("gamma", "chosen"), [(5.0, 1), (1.0, 0)])
def test_the_log_alone_is_believed_unless_adjusted_for_the_best_world(gamma: float, chosen: int) -> None:
    """Action 0 is the better one in truth, with and without a confounder."""
    log = log_of(gamma, 300)
    assert _greedy(_trained(gamma)[0]) == chosen
    trainer = _made(log, adjust=True, penalty=0.0)
    metrics = trainer.update(0, [experience_of(log)])
    assert _greedy(trainer) == 0
    assert metrics["worlds/adjustment"] < 0.1 if gamma == 1 else metrics["worlds/adjustment"] > 0.3


def _greedy(trainer: Trainer) -> int:
    return int(trainer.networks["q"](torch.ones(1, 1, 1)).argmax())


def test_a_narrow_tolerance_leaves_the_worlds_that_explain_the_log() -> None:
    trainer = _made(log_of(5.0, 300), tolerance=0.05, steps_per_update=1)
    assert trainer.update(0, [experience_of(log_of(5.0, 300))])["worlds/compatible"] == 2
    assert trainer.compatible is not None
    assert trainer.compatible.tolist() == [[False, True, True]]


def test_no_compatible_world_ends_with_what_to_do() -> None:
    log = log_of(5.0, 20)
    one_sided = replace(log, actions=np.ones_like(log.actions))
    with pytest.raises(BadInput, match=r"none of 3 is compatible .* raise trainer\.world_epochs"):
        _made(one_sided, world_epochs=1).update(0, [experience_of(one_sided)])


def test_a_log_of_one_patient_cannot_judge_worlds() -> None:
    log = log_for("discrete", episodes=1)
    with pytest.raises(BadInput, match="patients apart; train has 1"):
        _made(log).update(0, [experience_of(log)])


def test_without_penalty_it_is_conservative_q_learning() -> None:
    log = log_for("discrete")
    trainer = _made(log, penalty=0.0)
    assert trainer.update(0, [experience_of(log)])["changed_actions"] == 0.0
    for kept, plain in zip(trainer.networks["q"].parameters(), trainer.networks["plain"].parameters(), strict=True):
        assert torch.equal(kept, plain)


def test_the_twin_is_the_trainer_cql() -> None:
    log = log_for("discrete")
    trainer = _made(log, alpha=0.5)
    trainer.update(0, [experience_of(log)])
    job = {"env": {"id": "refork/Logs-v0"}, "agent": {"kind": "q_networks", "options": {"hidden": [16]}}}
    section = {"kind": "cql", "steps_per_update": 150, "batch": 64, "gamma": 0.01, "alpha": 0.5, "learning_rate": 0.01}
    cql = make_trainer(JobConfig.model_validate(job | {"trainer": section}), shape_of(log))
    cql.update(0, [experience_of(log)])
    twin = trainer.networks["plain"].acting_arrays("q")  # type: ignore[operator]
    assert all(np.array_equal(twin[name], array) for name, array in cql.weights().items())


def test_resuming_with_adjustment_equals_never_having_stopped() -> None:
    log = log_for("discrete")
    whole, first, second = (_made(log, adjust=True, steps_per_update=5) for _ in range(3))
    for update in range(2):
        whole.update(update, [experience_of(log)])
    first.update(0, [experience_of(log)])
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    second.update(1, [experience_of(log)])
    straight, resumed = whole.weights(), second.weights()
    assert all(np.array_equal(straight[name], resumed[name]) for name in straight)


def test_a_checkpoint_of_other_worlds_is_refused() -> None:
    log = log_for("discrete")
    state = _made(log).state_dict()
    with pytest.raises(BadInput, match="other worlds"):
        _made(log, worlds=["classes-1", "normal-5"]).load_state_dict(state)
    with pytest.raises(BadInput, match="another version: 'about'"):
        _made(log).load_state_dict({name: kept for name, kept in state.items() if name != "about"})


def test_settings_are_compared_on_the_same_worlds() -> None:
    log = log_for("discrete")
    first, second, third = _made(log), _made(log), _made(log, penalty=0.5)
    first.update(0, [experience_of(log)])
    second.adopt(first)
    second.update(0, [experience_of(log)])
    assert all(np.array_equal(first.weights()[name], array) for name, array in second.weights().items())
    third.adopt(first)
    assert third.compatible is first.compatible
    with pytest.raises(BadInput, match="has not fitted"):
        _made(log).adopt(_made(log))


@pytest.mark.parametrize("featured", [False, True])
def test_logs_of_states(featured: bool) -> None:
    vectors = log_for("discrete")
    numbers = (np.asarray(vectors.observations)[:, 0] > 0).astype(np.int32)
    observation = ObservationSpec("states", 2, ("x",) if featured else ())
    features = np.array([[-1.0], [1.0]], np.float32) if featured else None
    log = replace(
        vectors,
        spec=replace(vectors.spec, observation=observation),
        observations=numbers,
        state_features=features,
    )
    size = 1 if featured else 0
    shape = LogShape(log.spec, np.zeros(size, np.float32), np.ones(size, np.float32), features)
    agent = {"kind": "q_networks", "options": {"hidden": [8], "observe": "both" if featured else "states"}}
    section = {"kind": "delphic", "steps_per_update": 3, "batch": 8, "adjust": True, "counterfactual": "prior"}
    job = {"env": {"id": "refork/Logs-v0"}, "agent": agent, "trainer": section}
    metrics = make_trainer(JobConfig.model_validate(job), shape).update(0, [experience_of(log)])
    assert np.isfinite(list(metrics.values())).all()
    assert metrics["worlds/compatible"] >= 1


def test_long_episodes_are_fitted_in_windows() -> None:
    log = log_for("discrete", episodes=4, length=7)
    trainer = _made(log)
    tensors = trainer._minibatches.tensors(log)
    episodes = Episodes(experience_of(log), trainer.factory.shape, tensors, 0.25)
    assert len(episodes.held) == 1
    starts = [7 * int(e) for e in episodes.fitted]
    assert episodes.windows(3).tolist() == [[s + k, n] for s in starts for k, n in ((0, 3), (3, 3), (6, 1))]
