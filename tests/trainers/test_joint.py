"""What trainers of a joint value share, beyond the contract: other backbones, observations, masks; their losses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from refork.agents.log_policy import LogPolicy
from refork.envs.log_spec import ActionSpec, ObservationSpec
from refork.replay.transitions import Transitions
from refork.trainers.cfcql.loss import candidate_divergence
from refork.trainers.config import JobConfig
from refork.trainers.joint_loss import actor_terms, policy_terms, twin_minimum, twin_terms
from refork.trainers.make import make_trainer

from tests.trainers.logs import ACTIONS, AGENTS, experience_of, log_for, shape_of

KINDS = ("cfcql", "macql")


def _job(kind: str, seeds: int, **settings: Any) -> JobConfig:
    trainer = {"kind": kind, "seeds": seeds, "steps_per_update": 4, "batch": 8, "learning_rate": 0.01} | settings
    agent = {"kind": "q_networks", "options": {"hidden": [16, 16]}}
    return JobConfig.model_validate({"env": {"id": "refork/Logs-v0"}, "agent": agent, "trainer": trainer})


def _learnt(log: Transitions, kind: str, seeds: int = 2, **settings: Any) -> LogPolicy:
    trainer = make_trainer(_job(kind, seeds, **settings), shape_of(log))
    metrics = trainer.update(0, [experience_of(log)])
    assert all(np.isfinite(value) for value in metrics.values())
    return LogPolicy(log.spec, trainer.weights(), seeds)


def _own_observations(log: Transitions) -> Transitions:
    rows = np.random.default_rng(1).normal(size=(len(log.observations), AGENTS, log.observations.shape[-1]))
    spec = replace(log.spec, observation=replace(log.spec.observation, per_agent=True))
    return replace(log, spec=spec, observations=rows.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [{"mixer": "central"}, {"mixer": "monotonic"}])
def test_a_member_of_a_stack_learns_what_it_learns_alone(kind: str, settings: dict[str, Any]) -> None:
    """With either backbone and observations of their own."""
    log = _own_observations(log_for("factored discrete"))
    alone, stack = (_learnt(log, kind, seeds, **settings).member(0)(log.observations[:20]) for seeds in (1, 3))
    assert alone == pytest.approx(stack, abs=1e-4)


@pytest.mark.parametrize("kind", [*KINDS, "omar"])
@pytest.mark.parametrize("actions", ["factored discrete", "factored continuous"])
def test_each_acts_on_an_observation_of_its_own(kind: str, actions: str) -> None:
    log = _own_observations(log_for(actions))
    act = _learnt(log, kind, seeds=1).member(0)
    seen = log.observations[:20].copy()
    before = act(seen)
    seen[:, 1] *= -100.0
    changed = act(seen)
    assert np.array_equal(before[:, [0, 2]], changed[:, [0, 2]])
    assert not np.array_equal(before[:, 1], changed[:, 1])


@pytest.mark.parametrize("kind", [*KINDS, "omar"])
def test_states_of_their_own_can_be_learnt_from(kind: str) -> None:
    log = log_for("factored discrete")
    rows = np.random.default_rng(1).integers(5, size=(len(log.observations), AGENTS)).astype(np.int32)
    spec = replace(log.spec, observation=ObservationSpec("states", 5, per_agent=True))
    found = _learnt(replace(log, spec=spec, observations=rows), kind)
    assert found.member(1)(rows[:20]).sum(-1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("cfcql", {}), ("cfcql", {"mixer": "central"}), ("macql", {}), ("macql", {"mixer": "central"}), ("omar", {})],
)
def test_other_numbers_of_actions_and_masks_keep_losses_finite(kind: str, settings: dict[str, Any]) -> None:
    log = log_for("factored discrete")
    actions = np.minimum(log.actions, [1, 2, 3])
    allowed = np.random.default_rng(1).random((len(log.observations), AGENTS, ACTIONS)) < 0.4
    allowed[log.rows(np.arange(len(log)))[:, None], np.arange(AGENTS), actions] = True
    allowed[..., 0] = True
    log = replace(
        log, spec=replace(log.spec, action=ActionSpec("discrete", (2, 3, 4))), actions=actions, allowed=allowed
    )
    found = _learnt(log, kind, **settings).member(0)(log.observations[:20], allowed[:20])
    assert found.sum(-1) == pytest.approx(1)
    assert found[~(allowed[:20] & (np.arange(4) < np.array([2, 3, 4])[:, None]))].max() == 0


def test_sampled_joint_actions_train_too() -> None:
    log = log_for("factored discrete")
    assert ACTIONS**AGENTS > 8
    alone, stack = (_learnt(log, "macql", seeds, joint_actions=8).member(0)(log.observations[:20]) for seeds in (1, 3))
    assert alone == pytest.approx(stack, abs=1e-4)


def test_twins_are_summed_and_the_lesser_is_trusted() -> None:
    logged = torch.tensor([[1.0, 2.0], [0.0, 4.0]])  # (2 S, B)
    found = twin_terms(logged, torch.tensor([[1.0, 1.0]]), torch.tensor([0.5, 0.25]), alpha=2.0)
    assert found.td.item() == pytest.approx((0 + 1) / 2 + (1 + 9) / 2)
    assert found.conservative.item() == pytest.approx(0.75)
    assert found.total.item() == pytest.approx(5.5 + 1.5)
    assert twin_minimum(logged).tolist() == [[0.0, 2.0]]


def test_softmax_actors_raise_the_value_and_their_entropy() -> None:
    logits = torch.log(torch.tensor([[[[0.5, 0.25, 0.25]]]], dtype=torch.float64)).requires_grad_()
    swept = torch.tensor([[[[1.0, 3.0, 7.0]]]], dtype=torch.float64)
    allowed = torch.tensor([[[[True, True, False]]]])
    found = actor_terms(logits, swept, allowed, entropy=0.5)
    entropy = -(2 / 3 * np.log(2 / 3) + 1 / 3 * np.log(1 / 3))
    assert found.value.item() == pytest.approx(2 / 3 + 1)
    assert found.entropy.item() == pytest.approx(entropy)
    assert found.total.item() == pytest.approx(-5 / 3 - 0.5 * entropy)
    assert torch.autograd.gradcheck(lambda x: actor_terms(x, swept, allowed, 0.5).total, (logits,))


def test_continuous_actors_raise_the_value_and_shrink() -> None:
    found = policy_terms(torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[[1.0], [3.0]]]]), shrink=0.1)
    assert found.total.item() == pytest.approx(-2 + 0.1 * 5)


def test_the_divergence_on_candidates_is_that_of_the_densities() -> None:
    """On [0, 1] cut into halves with mu = 1.5 and 0.5: uniform candidates, behaviour 0.5 and 1.5."""
    mu, behaviour = torch.tensor([1.5, 0.5]).log(), torch.tensor([0.5, 1.5]).log()
    values = mu + 3.0  # the constant is divided out
    summands = values - 0.0 - np.log(2)
    found = candidate_divergence(values, summands, behaviour)
    assert found.item() == pytest.approx(0.75 * np.log(3) - 0.25 * np.log(3), abs=1e-6)
