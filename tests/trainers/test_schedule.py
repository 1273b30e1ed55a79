import pytest
from refork.envs.forkable import BadInput
from refork.trainers.crr.config import AlgorithmConfig
from refork.trainers.schedule import Schedule


def _schedule(**fields: object) -> Schedule:
    return Schedule.of(AlgorithmConfig(**{"learning_rate": 0.1, "updates": 10, **fields}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("constant", [0.05, 0.1, 0.1, 0.1, 0.1]),
        ("linear", [0.05, 0.1, 0.1, 0.05, 0.0]),
        ("cosine", [0.05, 0.1, 0.1, 0.05, 0.0]),
    ],
)
def test_rates_at_absolute_updates(kind: str, expected: list[float]) -> None:
    schedule = _schedule(schedule=kind, warmup=2)
    assert [schedule.rate(u) for u in (0, 1, 2, 6, 10)] == pytest.approx(expected)
    assert schedule.rate(99) == pytest.approx(expected[-1])


def test_cosine_is_not_linear() -> None:
    assert _schedule(schedule="cosine").rate(2) == pytest.approx(0.05 * (1 + 0.8090169943749475))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates": 20}, r"trainer.horizon: .* made with 10, the job now gives 20; resume with --trainer.horizon 10"),
        ({"learning_rate": 0.2}, "trainer.learning_rate"),
        ({"warmup": 3}, "trainer.warmup"),
        ({"schedule": "linear"}, "trainer.schedule"),
    ],
)
def test_a_schedule_that_would_bend_is_refused(change: dict, message: str) -> None:
    saved = _schedule(schedule="cosine").state_dict()
    with pytest.raises(BadInput, match=message):
        _schedule(**{"schedule": "cosine", **change}).check(saved)


def test_more_updates_with_the_old_horizon_or_a_constant_rate_are_fine() -> None:
    _schedule(schedule="cosine", updates=20, horizon=10).check(_schedule(schedule="cosine").state_dict())
    _schedule(updates=20).check(_schedule().state_dict())
