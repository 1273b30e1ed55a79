"""Settings that cannot mean anything are refused; penalties follow their schedules."""

import pytest
from pydantic import ValidationError
from refork.trainers.pmd.config import AlgorithmConfig
from refork.trainers.pmd.drift import Drift
from refork.trainers.pmd.penalty import RANGE, Penalty


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eta": 0.0}, "eta"),
        ({"eta": -1.0}, "eta"),
        ({"eta": float("nan")}, "eta"),
        ({"update": "trpo"}, "update"),
        ({"clip": 1.0}, "clip"),
        ({"gae_lambda": 1.1}, "gae_lambda"),
        ({"improve_states": 0.0}, "improve_states"),
        ({"kl": 0.1}, "kl"),
        ({"update": "mmd"}, "tau must be above 0"),
        ({"update": "mappo", "baseline": "counterfactual"}, "baseline must be value"),
        ({"improve_candidates": 1}, "0, or at least 2"),
        ({"updates": 10, "warm_updates": 8, "critic_updates": 2}, "leave no update to learn in"),
    ],
)
def test_bad_settings_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AlgorithmConfig(**options)


def _drifts(kl: float, reverse: float) -> list[Drift]:
    return [Drift(kl, reverse, 0.0, 0.0, 0.0), Drift(0.01, 0.01, 0.0, 0.0, 0.0)]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("constant", [0.4] * 4), ("sqrt", [0.4, 0.4 / 2**0.5, 0.4 / 3**0.5, 0.2]), ("inverse", [0.4, 0.2, 0.4 / 3, 0.1])],
)
def test_eta_follows_its_schedule(schedule: str, expected: list[float]) -> None:
    penalty, found = Penalty(AlgorithmConfig(eta=0.4, eta_schedule=schedule)), []
    for _ in range(4):
        found.append(penalty.eta(0))
        assert penalty.objective(0).forward == pytest.approx(1 / penalty.eta(0))
        penalty.adapt(_drifts(9.0, 9.0))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "kl", "reverse", "factor"),
    [
        ({"eta_schedule": "target"}, 0.016, 0.0, 0.5),
        ({"eta_schedule": "target"}, 0.006, 0.0, 2.0),
        ({"eta_schedule": "target"}, 0.012, 0.0, 1.0),
        ({"update": "ppo_kl"}, 0.0, 0.016, 0.5),
        ({"update": "ppo_kl"}, 1.0, 0.012, 1.0),
    ],
)
def test_adaptive_penalties_steer_each_operator_at_the_target(
    options: dict, kl: float, reverse: float, factor: float
) -> None:
    penalty = Penalty(AlgorithmConfig(eta=0.4, kl_target=0.01, **options))
    penalty.adapt(_drifts(kl, reverse))
    assert penalty.eta(0) == pytest.approx(0.4 * factor)
    assert penalty.eta(1) == 0.4
    for _ in range(30):
        penalty.adapt(_drifts(0.0, 0.0))
    assert penalty.eta(0) == pytest.approx(0.4 * RANGE)


def test_only_the_objective_differs_between_updates() -> None:
    found = {
        update: Penalty(AlgorithmConfig(update=update, eta=0.5, tau=0.1, entropy_bonus=0.01)).objective(0)
        for update in ("pmd", "ppo_clip", "ppo_kl", "mmd", "mappo")
    }
    assert [(o.clip, o.forward, o.backward) for o in found.values()] == [
        (None, 2.0, 0.0),
        (0.2, 0.0, 0.0),
        (None, 0.0, 2.0),
        (None, 2.0, 0.0),
        (0.2, 0.0, 0.0),
    ]
    assert {(o.magnet, o.entropy, o.distil) for o in found.values()} == {(0.1, 0.01, 1.0)}
