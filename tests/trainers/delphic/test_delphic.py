"""Worlds on a clinic whose confounding is known."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig
from refork.trainers.delphic.trainer import Trainer
from refork.trainers.make import make_trainer

from tests.trainers.delphic.confounded import log_of, naive_gap
from tests.trainers.logs import experience_of, log_for, shape_of


def _made(log: object, **options: object) -> Trainer:
    section = {"kind": "delphic", "steps_per_update": 150, "batch": 64, "gamma": 0.01, "alpha": 0.0}
    section |= {"world_hidden": [16], "learning_rate": 0.01, "worlds": ["classes-1", "classes-2", "classes-2"]}
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
    assert confounded["worlds/epistemic"] < 0.1 * confounded["worlds/delphic"]


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
