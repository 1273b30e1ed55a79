"""Guarded learning on logs of known truth: constraints bind, and nothing outside the training part is looked at."""

import numpy as np
import pytest
import torch
from refork.agents.log_policy import LogPolicy
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from refork.replay.transitions import LoggedExperience, Transitions
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.guardian import Guardian

from tests.trainers.ogsrl.made import NAMES, one_step, taught, trainer_for

SHORT = {
    "steps_per_update": 200,
    "batch": 64,
    "rollout": 1,
    "model_epochs": 20,
    "model_rate": 0.01,
    "clinician_weight": 0.05,
}
FREE = {"safety": [{"column": "o:SpO2", "below": 92.0, "budget": 1.0}], "dual_rate": 0.5, "cost_horizon": 2.0}
SAFE = {"safety": [{"column": "o:SpO2", "below": 92.0, "budget": 0.02}], "dual_rate": 0.5, "cost_horizon": 2.0}


def _doses(trainer: object, log: Transitions) -> list[float]:
    """Mean dose recommended in situations 0 and 1."""
    policy = LogPolicy(log.spec, trainer.weights(), 1).member(0)  # type: ignore[attr-defined]
    states = log.spec.observation.kind == "states"
    seen = np.array([0, 1]) if states else np.array([[0, 96], [1, 96]], np.float32)
    found = policy(seen)[:, 0]
    return [float(x) for x in (found @ np.arange(3.0) if log.spec.action.kind == "discrete" else found[:, 0])]


@pytest.mark.parametrize("kind", ["states", "vector"])
def test_the_guardian_keeps_to_what_was_logged_and_the_unguarded_policy_does_not(kind: str) -> None:
    """Action 2 is best everywhere; in situation 1 it was never logged. Without the guardian networks generalise."""
    torch.set_num_threads(1)
    log = one_step(kind, 600)
    guarded, row = taught(log, 1, **SHORT, **FREE)
    assert _doses(guarded, log) == pytest.approx([2.0, 1.0], abs=0.15)
    if kind == "vector":
        free, loose = taught(log, 1, guardian=False, **SHORT, **FREE)
        assert _doses(free, log)[1] > 1.5
        assert loose["cost/ood"] > 3 * row["cost/ood"]
        assert loose["dual/ood"] == 0 < row["dual/ood"]


@pytest.mark.parametrize("kind", ["states", "vector"])
def test_a_safety_limit_binds_by_its_multiplier(kind: str) -> None:
    torch.set_num_threads(1)
    log = one_step(kind, 600)
    free, loose = taught(log, 1, **SHORT, **FREE)
    safe, tight = taught(log, 1, **SHORT, **SAFE)
    assert _doses(free, log)[0] > 1.8
    assert _doses(safe, log)[0] < 1.3
    name = "o:SpO2 < 92"
    assert loose[f"dual/{name}"] == 0
    assert tight[f"dual/{name}"] > 0.5
    assert tight[f"budget/{name}"] == pytest.approx(0.02)


def test_continuous_doses_are_held_back_alike() -> None:
    torch.set_num_threads(1)
    log = one_step("vector", 600, actions="continuous")
    free, guarded, safe = (
        taught(log, 1, **SHORT, **settings)[0] for settings in ({**FREE, "guardian": False}, FREE, SAFE)
    )
    assert _doses(free, log)[1] > 1.5
    assert _doses(guarded, log)[1] < 1.3
    assert _doses(guarded, log)[0] > _doses(guarded, log)[1] + 0.15
    assert _doses(safe, log)[0] < 1.7


def test_rows_outside_the_training_part_change_nothing() -> None:
    """Test rows are neither in the model, nor the guardian, the budgets or the policy: here they are no numbers."""
    torch.set_num_threads(1)
    log = one_step("vector", 200)
    shown = np.arange(120)
    spoilt = one_step("vector", 200)
    spoilt.observations[240:] = np.nan
    spoilt.rewards[120:] = np.nan
    common = {"steps_per_update": 5, "model_epochs": 2}
    trainers = [trainer_for(log, **common) for _ in range(2)]  # both with the shape of the clean log
    rows = [
        t.update(0, [LoggedExperience("train", x, shown, 0.0)]) for t, x in zip(trainers, (log, spoilt), strict=True)
    ]
    assert rows[0] == rows[1]
    first, second = (t.weights() for t in trainers)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_checkpoint_of_another_version_or_other_settings_is_refused() -> None:
    log = one_step("vector", 50)
    state = trainer_for(log).state_dict()
    for part in ("world", "guardian", "constraints", "report"):
        with pytest.raises(BadInput, match=f"another version or other settings of ogsrl: '{part}'"):
            trainer_for(log).load_state_dict({name: kept for name, kept in state.items() if name != part})
    with pytest.raises(BadInput, match="other settings of ogsrl"):
        trainer_for(log, members=2).load_state_dict(state)


def test_limits_follow_names_when_columns_are_swapped() -> None:
    log = one_step("vector", 200)
    swapped = Transitions(
        **{
            **vars(log),
            "spec": LogSpec("", ObservationSpec("vector", 2, NAMES[::-1]), ActionSpec("discrete", (3,)), "dose"),
            "observations": log.observations[:, ::-1].copy(),
        }
    )
    rows = [taught(x, 1, steps_per_update=1, model_epochs=1)[1] for x in (log, swapped)]
    assert rows[0]["clinician/o:SpO2 < 92"] == rows[1]["clinician/o:SpO2 < 92"] > 0.01


def test_what_followed_is_the_row_after_also_when_last_steps_are_dropped() -> None:
    """Two steps an episode; only first steps are shown: each leads to the row of the second."""
    log = one_step("states", 100)
    double = Transitions(
        **{
            **vars(log),
            "observations": np.tile(np.array([0, 3, 4], np.int32), 50),
            "actions": np.tile(np.array([[1], [2]]), (50, 1)),
            "terminated": np.tile([False, True], 50),
            "starts": np.arange(51) * 2,
            "patients": np.arange(50),
        }
    )
    trainer = trainer_for(double, steps_per_update=1)
    trainer.update(0, [LoggedExperience("train", double, np.arange(0, 100, 2), 0.0)])
    led = trainer.world.step(
        torch.zeros(1, 9, dtype=torch.long), torch.ones(1, 9, dtype=torch.long), trainer.uniform, None
    )
    assert (led.observations == 3).all()
    assert not led.ended.any()
    assert trainer.guardian.density.table[0, 1] == 0  # all 50 pairs are (0, 1): log 1
    assert not np.isfinite(trainer.guardian.density.table[3, 2])


def test_costs_are_never_negative_and_the_model_is_not_exported() -> None:
    """Nothing that judges a policy can reach the model that made it: what is exported holds none."""
    log = one_step("vector", 200)
    trainer, row = taught(log, 1, steps_per_update=3, model_epochs=1)
    heads = {name.split(".")[0] for name in trainer.weights()}
    assert heads == {"logits", "behaviour", "guardian"}
    seen = torch.randn(1, 50, 2) * 50
    assert (trainer.guardian.of_actions(seen) >= 0).all()
    assert (trainer.guardian.of_actions(seen) <= 1).all()
    assert not [name for name in row if "true" in name or name.startswith("value")]


def test_budgets_default_to_what_the_logged_decisions_led_to() -> None:
    log = one_step("vector", 2000)
    _trainer, row = taught(log, 1, steps_per_update=1, model_epochs=1, cost_horizon=2.0)
    # a sixth of the decisions are dose 2 and lead below 92; (1 - g) of a step's cost counts, g = .5
    assert row["budget/o:SpO2 < 92"] == pytest.approx(0.5 / 6, rel=0.1)
    assert row["clinician/ood"] < 0.05
    assert row["budget/ood"] == pytest.approx(row["clinician/ood"])


def test_a_missing_column_is_named() -> None:
    with pytest.raises(BadInput, match="'o:lactate' is not in the log's observations; there are: noise, o:SpO2"):
        trainer_for(one_step("vector", 20), safety=[{"column": "o:lactate", "above": 4.0}])
    states = one_step("states", 20)
    plain = Transitions(**{**vars(states), "state_features": None})
    with pytest.raises(BadInput, match="no features of its states"):
        trainer_for(plain, safety=[{"column": "o:SpO2", "below": 92.0}])


def test_allowed_actions_of_a_state_hold_in_imagination() -> None:
    log = one_step("states", 300)
    allowed = np.ones((600, 1, 3), bool)
    allowed[0::2, 0, 2] = log.observations[0::2] == 0  # dose 2 is not there in situation 1
    log = Transitions(**{**vars(log), "allowed": allowed})
    trainer, _row = taught(log, 1, steps_per_update=2)
    assert trainer.imagined_legal(torch.tensor([[0, 1, 4]]))[0].tolist() == [
        [True] * 3,
        [True, True, False],
        [True] * 3,
    ]


def test_a_logged_decision_is_not_its_own_support() -> None:
    """Nine of one kind, one of another: left out, the one is never seen, and the nine are eight of nine."""
    log = one_step("states", 10)
    log.observations[0::2], log.actions[:] = 0, 0
    log.actions[9] = 1
    guardian = Guardian.fit(AlgorithmConfig(ood_percentile=20.0), log, np.arange(10))
    assert np.exp(guardian.density.threshold) == pytest.approx(8 / 9)
    found = guardian.of_logged(torch.zeros(1, 10, dtype=torch.long), torch.from_numpy(log.actions[None, :, 0]))
    assert found[0].tolist() == pytest.approx([0.0] * 9 + [1.0], abs=1e-6)
    every = guardian.of_actions(torch.zeros(1, 1, dtype=torch.long))[0, 0]
    assert every.tolist() == pytest.approx([0.0, 1 - 0.1 * 9 / 8, 1.0], abs=1e-6)
