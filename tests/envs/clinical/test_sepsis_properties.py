"""Whatever is asked of the sepsis simulators, their logs and patients keep their promises."""

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.envs.clinical.icu_sepsis import IcuSepsis
from refork.envs.clinical.patient import PatientEnv
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.forkable import StateRef
from refork.envs.registry import make_env

KINDS = {
    "icu": lambda: IcuSepsis(),
    "icu_two": lambda: IcuSepsis(factored=True),
    "scm": lambda: SepsisScm(strength=4.0),
    "scm_open": lambda: SepsisScm((), True),
    "scm_three": lambda: SepsisScm(("diabetes", "glucose"), factored=True, strength=2.0),
}


@cache
def simulator(kind: str) -> IcuSepsis | SepsisScm:
    return KINDS[kind]()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None)
@given(data=st.data(), episodes=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_a_log_is_whole_episodes_one_after_the_other(kind: str, data: st.DataObject, episodes: int, seed: int) -> None:
    made = simulator(kind)
    log = made.log(data.draw(st.sampled_from(made.behaviours)), episodes, seed)
    steps, spec = len(log.rewards), made.spec
    assert log.starts[0] == 0
    assert log.starts[-1] == steps
    assert (np.diff(log.starts) >= 1).all()
    assert log.observations.shape == (steps + episodes,)
    assert log.observations.dtype == np.int32
    assert 0 <= log.observations.min() <= log.observations.max() < spec.observation.size
    assert log.actions.shape == (steps, spec.action.agents)
    assert (log.actions >= 0).all()
    assert (log.actions < spec.action.sizes).all()
    last = np.zeros(steps, bool)
    last[log.starts[1:] - 1] = True
    assert ((log.terminated | log.truncated) == last).all()
    assert not (log.terminated & log.truncated).any()
    assert not log.rewards[~log.terminated].any()  # all reward comes at an end
    assert (log.behaviour > 0).all()
    assert (log.behaviour <= 1).all()
    if spec.horizon:
        assert np.diff(log.starts).max() <= spec.horizon
    assert log.state_features is not None
    assert log.state_features.shape == (spec.observation.size, len(spec.observation.names))


@cache
def patient(env_id: str) -> PatientEnv:
    env = make_env(env_id, task="any")
    assert isinstance(env, PatientEnv)
    return env


def step(env: PatientEnv, action: int) -> tuple[Any, ...]:
    """What happened, and where it led; () after the end."""
    try:
        return (*env.step(action)[:4], env.state_id, env.grade())
    except RuntimeError:
        return ()


@pytest.mark.parametrize("env_id", ["refork/IcuSepsis-v0", "refork/SepsisSCM-v0"])
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31 - 1),
    before=st.lists(st.integers(0, 7), max_size=5),
    strayed=st.lists(st.integers(0, 7), max_size=8),
    then=st.lists(st.integers(0, 7), min_size=1, max_size=8),
)
def test_a_future_does_not_depend_on_where_one_has_been(
    env_id: str, seed: int, before: list[int], strayed: list[int], then: list[int]
) -> None:
    """Play, snapshot, go astray (with other noise too), come back: the same actions have the same future."""
    env = patient(env_id)
    env.reset(seed=seed)
    for action in before:
        step(env, action)
    ref = env.snapshot()
    expected = [step(env, action) for action in then]
    env.restore(ref)
    for action in strayed:
        step(env, action)
    env.reset()
    env.restore(StateRef(ref.state_id, json.loads(json.dumps(ref.payload))), noise="same")
    assert env.state_id == ref.state_id
    assert [step(env, action) for action in then] == expected
