"""The rules of the sepsis model by hand, and that sampling and the exact tensor come from them."""

from itertools import product

import numpy as np
import pytest
from refork.envs.clinical.sepsis_scm_exact import best_policy, exact_model
from refork.envs.clinical.sepsis_scm_rules import ACTIONS, STATES, flags_after, levels, rewards, rules, start
from refork.envs.clinical.sepsis_scm_sampling import draw_noise, draw_starts, next_states, play

from tests.envs.clinical.whole_tensor import transitions

ANTIBIOTICS, VENTILATION, VASOPRESSOR = 4, 2, 1  # bits of an action
HAD_ANTIBIOTICS, HAD_VASOPRESSOR, HAD_VENTILATION = 4, 2, 1  # bits of the flags
HEART, PRESSURE, OXYGEN, GLUCOSE = range(4)


def state(diabetes: int, heart: int, pressure: int, oxygen: int, glucose: int, flags: int = 0) -> int:
    return int(np.ravel_multi_index((diabetes, heart, pressure, oxygen, glucose, flags), (2, 3, 3, 2, 5, 8)))


@pytest.mark.parametrize(
    ("sign", "diabetes", "flags", "action", "level", "expected"),
    [
        (HEART, 0, 0, 0, 0, [0.9, 0.1, 0]),
        (HEART, 0, 0, 0, 1, [0.1, 0.8, 0.1]),
        (HEART, 0, 0, ANTIBIOTICS, 2, [0, 0.5, 0.5]),
        (HEART, 0, HAD_ANTIBIOTICS, ANTIBIOTICS, 2, [0, 0.5, 0.5]),
        (HEART, 0, HAD_ANTIBIOTICS, 0, 1, [0, 0.9, 0.1]),
        (HEART, 0, HAD_ANTIBIOTICS, 0, 0, [1, 0, 0]),
        (HEART, 0, HAD_VASOPRESSOR, VENTILATION, 2, [0, 0.1, 0.9]),
        (PRESSURE, 0, 0, ANTIBIOTICS | VASOPRESSOR, 2, [0, 0.15, 0.85]),
        (PRESSURE, 1, 0, ANTIBIOTICS | VASOPRESSOR, 2, [0, 0.05, 0.95]),
        (PRESSURE, 0, 0, VASOPRESSOR, 0, [0.3, 0.7, 0]),
        (PRESSURE, 1, 0, VASOPRESSOR, 0, [0.1, 0.5, 0.4]),
        (PRESSURE, 0, HAD_VASOPRESSOR, 0, 2, [0, 0.1, 0.9]),
        (PRESSURE, 1, HAD_VASOPRESSOR, 0, 1, [0.05, 0.95, 0]),
        (PRESSURE, 0, HAD_ANTIBIOTICS | HAD_VASOPRESSOR, 0, 1, [0.09, 0.82, 0.09]),
        (PRESSURE, 0, HAD_ANTIBIOTICS | HAD_VASOPRESSOR, 0, 0, [1, 0, 0]),
        (OXYGEN, 0, 0, VENTILATION, 0, [0.3, 0.7]),
        (OXYGEN, 0, 0, VENTILATION, 1, [0, 1]),
        (OXYGEN, 0, HAD_VENTILATION, 0, 1, [0.1, 0.9]),
        (OXYGEN, 0, HAD_VENTILATION, 0, 0, [1, 0]),
        (OXYGEN, 0, 0, 0, 0, [0.9, 0.1]),
        (GLUCOSE, 0, 0, 0, 3, [0, 0, 0.1, 0.8, 0.1]),
        (GLUCOSE, 1, 0, 0, 4, [0, 0, 0, 0.3, 0.7]),
        (GLUCOSE, 1, HAD_VASOPRESSOR, 0, 2, [0, 0.3, 0.4, 0.3, 0]),
        (GLUCOSE, 0, 0, VASOPRESSOR, 3, [0, 0, 0, 1, 0]),
        (GLUCOSE, 1, 0, VASOPRESSOR, 3, [0, 0, 0, 0.5, 0.5]),
        (GLUCOSE, 1, 0, VASOPRESSOR, 4, [0, 0, 0, 0, 1]),
    ],
)
def test_a_step_by_hand(sign: int, diabetes: int, flags: int, action: int, level: int, expected: list[float]) -> None:
    assert rules()[sign][diabetes, flags, action, level] == pytest.approx(expected, abs=1e-12)


def test_the_published_mistake_moves_glucose_up_to_one_and_nothing_else() -> None:
    fixed, published = rules(), rules(published_glucose=True)
    assert published[GLUCOSE][0, 0, 0, 3] == pytest.approx([0, 0.1, 0.1, 0.8, 0])
    assert published[GLUCOSE][0, 0, 0, 0] == pytest.approx([0.9, 0.1, 0, 0, 0])
    assert (published[GLUCOSE][1] == fixed[GLUCOSE][1]).all()
    assert (published[GLUCOSE][0][:, VASOPRESSOR] == fixed[GLUCOSE][0][:, VASOPRESSOR]).all()
    assert all((published[sign] == fixed[sign]).all() for sign in (HEART, PRESSURE, OXYGEN))


def test_flags_are_in_another_order_than_the_bits_of_an_action() -> None:
    assert flags_after(np.arange(8)).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_an_end_is_three_abnormal_signs_or_none_without_treatment() -> None:
    for signs, (heart, pressure, oxygen, glucose) in enumerate(levels()):
        abnormal = sum(map(int, (heart != 1, pressure != 1, oxygen != 1, glucose != 2)))
        assert rewards()[0, signs] == (-1 if abnormal >= 3 else 1 if abnormal == 0 else 0)
        assert (rewards()[1:, signs] == (-1 if abnormal >= 3 else 0)).all()


def test_the_start_is_untreated_alive_and_redrawn_with_its_diabetes() -> None:
    first = start()
    assert first.sum() == pytest.approx(1)
    assert not first[:, 1:].any()
    assert not first[:, rewards() != 0].any()
    kept = []  # by hand: chance that a first draw is kept, without and with diabetes
    for glucose in ([0.05, 0.15, 0.6, 0.15, 0.05], [0.01, 0.05, 0.15, 0.6, 0.19]):
        chance = 0.0
        for h, p, o, g in product((False, True), repeat=4):  # normal or not: .5, .5, .8, glucose[2]
            weight = 0.5 * 0.5 * (0.8 if o else 0.2) * (glucose[2] if g else 1 - glucose[2])
            chance += weight if 2 <= h + p + o + g <= 3 else 0.0
        kept.append(chance)
    assert first[1].sum() == pytest.approx(0.2 * kept[1] / (0.8 * kept[0] + 0.2 * kept[1]))


def test_the_tensor_is_a_distribution_and_ends_stay() -> None:
    tensor = transitions(exact_model())
    assert tensor.shape == (STATES, ACTIONS, STATES)
    assert np.allclose(tensor.sum(-1), 1)
    ends = np.flatnonzero(exact_model().ends)
    assert (tensor[ends, :, ends] == 1).all()


@pytest.mark.parametrize("published", [False, True])
def test_simulated_frequencies_are_those_of_the_tensor(published: bool) -> None:
    rng = np.random.default_rng(0)
    tensor, draws = transitions(exact_model(published)), 20_000
    going = np.flatnonzero(~exact_model(published).ends)
    for here, action in zip(rng.choice(going, 25), rng.integers(8, size=25), strict=True):
        noise = draw_noise(rng, draws)
        after = next_states(np.full(draws, here), np.full(draws, action), noise, published)
        expected = tensor[here, action]
        found = np.bincount(after, minlength=STATES) / draws
        assert not found[expected == 0].any()
        assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / draws)).all()


def test_starts_are_drawn_as_often_as_they_should_be() -> None:
    drawn = draw_starts(np.random.default_rng(3), 200_000)
    expected = exact_model().start
    found = np.bincount(drawn, minlength=STATES) / 200_000
    assert (np.abs(found - expected) <= 5 * np.sqrt(expected * (1 - expected) / 200_000)).all()


@pytest.mark.parametrize(
    ("published", "random", "never", "optimal", "softened"),
    [(True, -0.7588, -0.8092, 0.4297, 0.3170), (False, -0.7164, -0.7591, 0.5614, 0.4638)],
)
def test_values_are_the_known_ones(
    published: bool, random: float, never: float, optimal: float, softened: float
) -> None:
    model, best = exact_model(published), best_policy(published)
    policies = {
        random: np.full((STATES, ACTIONS), 1 / 8),
        never: np.eye(8)[np.zeros(STATES, int)],
        optimal: best,
        softened: 0.95 * best + 0.05 / 7 * (1 - best),
    }
    for value, policy in policies.items():
        assert model.value(policy) == pytest.approx(value, abs=5e-5)
    assert model.best_value() > optimal + 0.01  # who also counts the steps does better still


def test_the_value_is_what_visits_and_transitions_say() -> None:
    """Forward over the plain tensor, against backward over the blocks."""
    model, rng = exact_model(), np.random.default_rng(1)
    policy = rng.dirichlet(np.ones(ACTIONS), STATES)
    tensor = transitions(model)
    moved = np.einsum("sa,sap->sp", policy, tensor)
    here, value = model.start.copy(), 0.0
    visits = model.visits(policy)
    for t in range(20):
        here[model.ends] = 0
        assert visits[t] == pytest.approx(here)
        here = here @ moved
        value += 0.97**t * here @ model.rewards
    assert model.value(policy, 0.97) == pytest.approx(value)


def test_the_best_policy_is_greedy_to_its_own_values() -> None:
    model, best = exact_model(), best_policy()
    values = model.values(best, 0.99, 3000)
    going = ~model.ends
    q = model.action_values(values, 0.99)[going]
    assert (q.max(-1) - (q * best[going]).sum(-1)).max() < 1e-9


def test_the_same_noise_is_the_same_fate_whoever_is_played_beside() -> None:
    rng = np.random.default_rng(5)
    starts, noise, choices = draw_starts(rng, 64), draw_noise(rng, 20, 64), rng.random((20, 64))
    policy = np.full((STATES, ACTIONS), 1 / 8)
    together = play(starts, policy, noise, choices, False)
    for k in (0, 17, 63):
        alone = play(starts[k : k + 1], policy, noise[:, k : k + 1], choices[:, k : k + 1], False)
        steps = together.lengths[k]
        assert alone.lengths[0] == steps
        assert (alone.states[0, : steps + 1] == together.states[k, : steps + 1]).all()


def test_another_action_under_the_same_noise_changes_only_what_it_acts_on() -> None:
    rng = np.random.default_rng(6)
    here = np.full(5000, state(0, 1, 0, 0, 2))
    noise = draw_noise(rng, 5000)
    untreated, ventilated, raised = (
        np.stack(np.unravel_index(next_states(here, np.full(5000, a), noise, False), (2, 3, 3, 2, 5, 8)), -1)
        for a in (0, VENTILATION, VASOPRESSOR)
    )
    assert (untreated[:, [1, 2, 4]] == ventilated[:, [1, 2, 4]]).all()  # heart rate, pressure, glucose
    assert (ventilated[:, 3] >= untreated[:, 3]).all()  # nobody is worse off by what can only help: .7 against .1
    assert ventilated[:, 3].mean() == pytest.approx(0.7, abs=0.03)
    assert (raised[:, 2] >= untreated[:, 2]).all()
    assert (raised[:, 1] == untreated[:, 1]).all()
