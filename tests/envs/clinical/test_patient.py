"""One patient: Gymnasium's checker, going back, the same noise as a true counterfactual, both models."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from refork.envs.clinical.icu_sepsis import DEATH, IcuSepsis, exact_value, tables
from refork.envs.clinical.patient import PatientEnv
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.clinical.sepsis_scm_exact import exact_model
from refork.envs.forkable import BadInput, ForkableEnv, Reward, StateMismatch, StateRef
from refork.envs.registry import make_env

from tests.envs.clinical.whole_tensor import transitions

ICU, SCM = "refork/IcuSepsis-v0", "refork/SepsisSCM-v0"
BOTH = pytest.mark.parametrize("env_id", [ICU, SCM])


def opened(env_id: str, task: str = "any", **options: Any) -> PatientEnv:
    env = make_env(env_id, task=task, **options)
    assert isinstance(env, PatientEnv)
    return env


def course(env: PatientEnv, actions: Callable[[int], int], steps: int = 200) -> list[tuple[int, float, bool, bool]]:
    """Observations, rewards and ends until the end."""
    found = []
    for t in range(steps):
        seen, reward, terminated, truncated, _ = env.step(actions(t))
        found.append((int(seen), reward, terminated, truncated))
        if terminated or truncated:
            break
    return found


def after(env: PatientEnv, steps: int, action: int = 0) -> StateRef:
    """A snapshot after that many steps of some patient who is still in treatment, through JSON as stores keep it."""
    for seed in range(100):
        env.reset(seed=seed)
        if not any(any(env.step(action)[2:4]) for _ in range(steps)):
            ref = env.snapshot()
            return StateRef(ref.state_id, json.loads(json.dumps(ref.payload)))
    raise AssertionError("nobody lasted")


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        (ICU, {}),
        (ICU, {"observe": "features"}),
        (ICU, {"factored": True}),
        (SCM, {}),
        (SCM, {"observe": "features", "hide": ()}),
        (SCM, {"factored": True, "hide": ("diabetes", "glucose")}),
        (SCM, {"published_glucose": True, "task": "patient-4"}),
    ],
)
def test_gymnasiums_checker_finds_nothing(env_id: str, options: dict[str, Any]) -> None:
    env = opened(env_id, **options)
    assert isinstance(env, ForkableEnv)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)
    env.close()


@BOTH
def test_a_task_names_a_patient_and_any_draws_one(env_id: str) -> None:
    first = [int(opened(env_id, f"patient-{n}").reset()[0]) for n in range(12)]
    assert first == [int(opened(env_id, f"patient-{n}").reset(seed=n)[0]) for n in range(12)]
    assert len(set(first)) > 6
    env = opened(env_id)
    env.reset(seed=0)
    assert len({int(env.reset()[0]) for _ in range(12)}) > 6
    assert len({int(opened(env_id).reset(seed=5)[0]) for _ in range(3)}) == 1


@BOTH
def test_the_same_noise_and_actions_are_the_same_future_also_elsewhere(env_id: str) -> None:
    env = opened(env_id)
    ref = after(env, 2)
    expected = course(env, lambda t: (t * 3 + 1) % 8)
    for other in (env, opened(env_id), opened(env_id, "patient-9")):
        for _ in range(2):
            other.restore(ref, noise="same")
            assert other.state_id == ref.state_id
            assert course(other, lambda t: (t * 3 + 1) % 8) == expected


@BOTH
def test_fresh_noise_is_another_future_every_time_and_follows_from_the_seed(env_id: str) -> None:
    def futures(seed: int) -> list[list[tuple[int, float, bool, bool]]]:
        env = opened(env_id)
        ref = after(opened(env_id), 2)
        env.reset(seed=seed)
        found = []
        for _ in range(8):
            env.restore(ref)
            assert env.state_id == ref.state_id
            found.append(course(env, lambda _: 1))
        return found

    assert futures(1) == futures(1)
    assert len({str(future) for future in futures(1)}) > 3
    assert futures(1) != futures(2)


def test_what_an_action_does_not_touch_happens_all_the_same_in_the_sepsis_model() -> None:
    """Ventilation or not, under the same noise: heart rate, pressure and glucose are the same, oxygen no lower."""
    env = opened(SCM, observe="features")
    helped = 0
    for seed in range(60):
        env.reset(seed=seed)
        ref = env.snapshot()
        plain = env.step(0)[0]
        env.restore(ref, noise="same")
        ventilated = env.step(2)[0]
        assert (plain[[0, 1, 3, 4, 5]] == ventilated[[0, 1, 3, 4, 5]]).all()
        assert ventilated[2] >= plain[2]
        helped += int(ventilated[2] > plain[2])
    assert helped > 0


def test_a_counterfactual_of_icu_sepsis_leaves_a_state_only_for_a_likelier_one() -> None:
    """Counterfactual stability (Oberst and Sontag 2019): i under a, j under b only if p_b(j)/p_a(j) > p_b(i)/p_a(i)."""
    env, changed = opened(ICU), 0
    for seed in range(150):
        here = int(env.reset(seed=seed)[0])
        ref, a, b = env.snapshot(), seed % 25, (seed * 7 + 3) % 25
        i = int(env.step(a)[0])
        env.restore(ref, noise="same")
        j = int(env.step(b)[0])
        if i != j:
            changed += 1
            p, q = tables().transitions[here, a], tables().transitions[here, b]
            assert q[j] * p[i] > q[i] * p[j]
    assert 0 < changed < 150


@pytest.mark.parametrize(("env_id", "actions"), [(ICU, 25), (SCM, 8)])
def test_playing_patients_is_the_simulator(env_id: str, actions: int) -> None:
    """Mean return of random play against the exact value."""
    env, rng = opened(env_id), np.random.default_rng(0)
    env.reset(seed=0)
    returns = []
    for _ in range(600):
        env.reset()
        returns.append(sum(reward for _, reward, _, _ in course(env, lambda _: int(rng.integers(actions)))))
        assert env.grade() == Reward(returns[-1])
    truth = exact_value(IcuSepsis().table("random")) if env_id == ICU else SepsisScm().behaviour_truth("random").value
    assert abs(np.mean(returns) - truth) < 4 * np.std(returns) / np.sqrt(600)


@pytest.mark.parametrize(("env_id", "actions"), [(ICU, 25), (SCM, 8)])
def test_one_step_of_a_patient_has_the_probabilities_of_the_table(env_id: str, actions: int) -> None:
    env = opened(env_id, **({"hide": ()} if env_id == SCM else {}))
    ref = after(env, 1)
    tensor = transitions(exact_model()) if env_id == SCM else tables().transitions
    here, action = int(env.restore(ref)), 5 % actions
    found = np.zeros(tensor.shape[-1])
    for _ in range(3000):
        env.restore(ref)
        found[int(env.step(action)[0])] += 1 / 3000
    expected = tensor[here, action]
    assert not found[expected == 0].any()
    often = expected > 0.005
    assert (np.abs(found - expected)[often] < 5 * np.sqrt(expected * (1 - expected) / 3000)[often]).all()


def test_an_episode_of_the_sepsis_model_is_cut_at_twenty_steps_and_icu_sepsis_never() -> None:
    env = opened(SCM)
    lengths, cut = [], 0
    for seed in range(80):
        env.reset(seed=seed)
        steps = course(env, lambda t: (0, 5, 3)[t % 3])
        lengths.append(len(steps))
        cut += steps[-1][3]
        assert steps[-1][2] != steps[-1][3]
        assert steps[-1][3] == (len(steps) == 20 and not steps[-1][2])
        with pytest.raises(RuntimeError, match="has ended"):
            env.step(0)
    assert max(lengths) == 20
    assert cut > 0
    icu = opened(ICU)
    for seed in range(40):
        icu.reset(seed=seed)
        *_, (last, _, terminated, truncated) = course(icu, lambda _: 0, 10_000)
        assert (terminated, truncated) == (True, False)
        assert last >= DEATH


@BOTH
def test_the_end_is_restored_as_an_end(env_id: str) -> None:
    env = opened(env_id)
    env.reset(seed=1)
    course(env, lambda _: 0)
    ref, grade = env.snapshot(), env.grade()
    env.reset()
    env.restore(ref)
    assert env.grade() == grade
    with pytest.raises(RuntimeError, match="has ended"):
        env.step(0)


@BOTH
def test_grading_in_mid_episode_is_the_return_so_far_and_disturbs_nothing(env_id: str) -> None:
    env = opened(env_id)
    ref = after(env, 2)
    assert env.grade() == Reward(0.0)
    assert env.state_id == ref.state_id
    assert env.snapshot().payload == ref.payload


def test_state_ids_tell_the_whole_state_and_the_model() -> None:
    """Two patients who look alike but for the hidden diabetes have different ids, two ways to one state the same."""
    env = opened(SCM)
    ref = env.snapshot()
    seen = {}
    for state in (0, 720):
        with pytest.raises(StateMismatch):
            env.restore(StateRef("0" * 64, {**ref.payload, "state": state}))
        env._state = state
        seen[state] = (env.state_id, int(env._observation()))
    assert seen[0][0] != seen[720][0]
    assert seen[0][1] == seen[720][1]
    ids = set()
    for key in range(40):
        env.restore(ref, noise="same")
        env._key = key
        env.step(3)
        ids.add(env.state_id)
    assert 1 < len(ids) < 40


@BOTH
@pytest.mark.parametrize(("name", "value"), [("state", 1), ("step", 7), ("state", 10**6), ("state", -1)])
def test_a_state_that_is_not_its_id_is_a_mismatch_and_leaves_the_environment_alone(
    env_id: str, name: str, value: int
) -> None:
    env = opened(env_id)
    ref = after(env, 2)
    payload = dict(ref.payload)
    payload[name] = value if payload[name] != value else value + 1
    env.reset(seed=4)
    before = env.state_id
    with pytest.raises(StateMismatch, match="the reference names"):
        env.restore(StateRef(ref.state_id, payload))
    assert env.state_id == before
    env.step(0)


def test_a_reference_of_another_model_is_named() -> None:
    ref = opened(ICU).snapshot()
    with pytest.raises(StateMismatch, match="its env is refork/IcuSepsis-v0, here it is refork/SepsisSCM-v0"):
        opened(SCM).restore(ref)
    with pytest.raises(StateMismatch, match="its published_glucose is False, here it is True"):
        opened(SCM, published_glucose=True).restore(opened(SCM).snapshot())
    shown = opened(SCM, hide=()).restore(opened(SCM, "patient-2").snapshot())  # who sees more sees the same patient
    assert int(shown) % 720 == int(opened(SCM, "patient-2").reset()[0])


@BOTH
@pytest.mark.parametrize("action", [-1, 25, 99, [1, 1]])
def test_an_action_that_does_not_exist_is_refused(env_id: str, action: Any) -> None:
    env = opened(env_id)
    before = env.state_id
    with pytest.raises(ValueError, match=r"of a patient: expected 0 to (24|7)"):
        env.step(action)
    assert env.state_id == before


def test_two_decision_makers_choose_what_one_would() -> None:
    one, two = opened(ICU), opened(ICU, factored=True)
    ref = after(one, 1)
    for action in (0, 7, 24):
        one.restore(ref, noise="same")
        two.restore(ref, noise="same")
        assert one.step(action)[0] == two.step(np.array(divmod(action, 5)))[0]
    two.restore(ref)
    with pytest.raises(ValueError, match="expected 0 to 4 and 0 to 4"):
        two.step(np.array([0, 5]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "patient"}, "task 'patient' is no patient: expected 'any' or 'patient-NUMBER'"),
        ({"task": "chain-3"}, "is no patient"),
        ({"observe": "all"}, "observe='all'"),
        ({"hide": ("oxygen",)}, "hide"),
        ({"colour": 1}, "options of refork/SepsisSCM-v0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_env(SCM, **({"task": "any"} | options))
