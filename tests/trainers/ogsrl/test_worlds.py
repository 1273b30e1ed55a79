"""The models of what follows: what they draw, how they are judged, and that they see their own part alone."""

import numpy as np
import pytest
import torch
from refork.envs.forkable import BadInput
from refork.replay.transitions import Transitions
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.counted_world import CountedWorld
from refork.trainers.ogsrl.world import part_by_patient

from tests.trainers.ogsrl.made import one_step, trainer_for


def _uniform(*shape: int) -> torch.Tensor:
    return torch.rand((1, *shape), generator=_GENERATOR)


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn((1, *shape), generator=_GENERATOR)


_GENERATOR = torch.Generator().manual_seed(0)


def test_a_counted_model_draws_what_followed_the_decision_shrunk_to_its_state() -> None:
    log = one_step("states")
    world = CountedWorld(log.spec, 1.0)
    report = world.fit(log, np.arange(len(log)))
    assert world.strength == 0.3  # actions decide all that follows
    assert report["model/heldout_log_likelihood"] > report["model/heldout_log_likelihood_of_states_alone"] + 0.5
    assert report["model/heldout_value_rmse"] < 0.05 * report["model/heldout_value_rmse_of_states_alone"]
    count = 4000
    led = world.step(torch.zeros(1, count, dtype=torch.long), torch.full((1, count), 2), _uniform, _normal)
    assert led.ended.all()
    assert led.known.all()
    assert (led.observations == 4).float().mean() > 0.99
    assert led.rewards[led.observations == 4].unique().tolist() == [2.0]


def test_a_decision_never_logged_is_what_others_in_its_state_led_to() -> None:
    log = one_step("states")
    world = CountedWorld(log.spec, 1.0)
    world.fit(log, np.arange(len(log)))
    led = world.step(torch.ones(1, 4000, dtype=torch.long), torch.full((1, 4000), 2), _uniform, _normal)
    shares = [(led.observations == state).float().mean().item() for state in (2, 3, 4)]
    assert shares == pytest.approx([0.5, 0.5, 0.0], abs=0.06)
    unknown = world.step(torch.full((1, 3), 4), torch.zeros(1, 3, dtype=torch.long), _uniform, _normal)
    assert not unknown.known.any()


def test_actions_that_change_nothing_are_shrunk_away() -> None:
    rng = np.random.default_rng(1)
    log = one_step("states")
    log.rewards[:] = rng.integers(2, size=len(log))
    world = CountedWorld(log.spec, 1.0)
    world.fit(log, np.arange(len(log)))
    assert world.strength >= 100


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_an_ensemble_predicts_better_than_no_change(actions: str) -> None:
    torch.set_num_threads(1)
    log = one_step("vector", 800, actions=actions)
    world = trainer_for(log, model_epochs=40, members=2, model_rate=0.01).world
    report = world.fit(log, np.arange(len(log)))
    assert report["model/heldout_rmse"] < 0.25 * report["model/heldout_rmse_of_no_change"]
    seen = torch.tensor([[[0.0, 96.0]]]).expand(1, 500, 2)
    taken = torch.full((1, 500), 2) if actions == "discrete" else torch.ones(1, 500, 1)
    led = world.step(seen, taken, _uniform, _normal)
    assert led.observations[..., 1].mean().item() == pytest.approx(90.0, abs=0.7)
    assert led.rewards.mean().item() == pytest.approx(2.0, abs=0.15)
    assert led.ended.float().mean() > 0.97


def test_errors_are_measured_on_other_patients_than_those_fitted() -> None:
    log = one_step("states", 200)
    log = Transitions(**{**vars(log), "patients": np.repeat(np.arange(40), 5)})
    shown, held = part_by_patient(log, np.arange(100))
    assert len(held) == 15
    assert sorted([*shown, *held]) == list(range(100))
    assert not set(log.patients[log.episode[shown]]) & set(log.patients[log.episode[held]])
    with pytest.raises(BadInput, match="one patient"):
        part_by_patient(log, np.arange(5))


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="one of `below` and `above`"):
        AlgorithmConfig.model_validate({"safety": [{"column": "x", "below": 1.0, "above": 2.0}]})
