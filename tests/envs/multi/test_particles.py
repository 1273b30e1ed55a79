"""Particles: step by step what the package plays; how the rule drives; four qualities of logs."""

from typing import Any

import numpy as np
import pytest
from mpe2 import simple_spread_v3
from refork.envs.forkable import BadInput
from refork.envs.multi.navigation import (
    Navigation,
    ParticlesSimulator,
    force_density,
    nearest_direction,
    spread_around,
    steering,
)
from refork.envs.multi.particles import Particles, ParticleState, feature_names
from refork.envs.multi.particles_env import thrusters
from refork.envs.simulators import open_simulator
from refork.replay.transitions import of


def state_of(package: Any) -> ParticleState:
    world = package.unwrapped.world
    return ParticleState(
        np.array([[agent.state.p_pos for agent in world.agents]]),
        np.array([[agent.state.p_vel for agent in world.agents]]),
        np.array([[landmark.state.p_pos for landmark in world.landmarks]]),
    )


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_it_plays_what_the_package_plays(n: int, actions: Any) -> None:
    """Crowded starts, so that agents collide."""
    package = simple_spread_v3.parallel_env(N=n, max_cycles=25, continuous_actions=actions == "continuous")
    rng, world = np.random.default_rng(n), Particles(n, actions)
    touched = 0
    for seed in range(4):
        package.reset(seed=seed)
        for agent in package.unwrapped.world.agents:
            agent.state.p_pos *= 0.3
        state = state_of(package)
        while package.agents:
            names = package.agents
            seen = np.stack([package.aec_env.observe(name) for name in names])
            assert world.observe(state)[0] == pytest.approx(seen, abs=1e-6)
            if actions == "discrete":
                moves = rng.integers(5, size=n)
                told = dict(zip(names, moves.tolist(), strict=True))
            else:
                moves = rng.uniform(-1, 1, (n, 2)).astype(np.float32)
                told = {name: thrusters(move) for name, move in zip(names, moves, strict=True)}
            _, rewards, _, _, _ = package.step(told)
            state, reward = world.step(state, moves[None])
            assert reward[0] == pytest.approx(np.mean(list(rewards.values())), abs=1e-6)
            touched += len(set(rewards.values())) > 1
            real = state_of(package)
            for name in ("positions", "velocities", "landmarks"):
                assert getattr(state, name) == pytest.approx(getattr(real, name), abs=1e-6)
    assert touched > 0 or n == 2  # two always pay the same for a collision


def test_features_are_named_in_their_order() -> None:
    names = feature_names(3)
    assert len(names) == 18 == Particles(3, "discrete").spec.observation.size
    state = Particles(3, "discrete").begin(1, np.random.default_rng(0))
    seen = Particles(3, "discrete").observe(state)[0, 1]
    assert seen[names.index("y")] == pytest.approx(state.positions[0, 1, 1])
    landmark = state.landmarks[0, 2, 0] - state.positions[0, 1, 0]
    assert seen[names.index("landmark_2_x")] == pytest.approx(landmark)
    assert seen[names.index("other_0_y")] == pytest.approx(state.positions[0, 0, 1] - state.positions[0, 1, 1])
    assert seen[names.index("channel_3")] == 0


def test_the_rule_stops_at_the_landmark_that_is_its_own() -> None:
    world = Navigation(2, "continuous")
    state = ParticleState(
        np.array([[[0.0, 0.0], [0.1, 0.9]]]),
        np.array([[[0.4, 0.0], [0.0, 0.0]]]),
        np.array([[[0.0, 1.0], [0.5, 0.0]]]),
    )
    goal = steering(world.observe(state), 2, 1.0)
    # way .5 - (.1 + .4 x .75) x .4 = .34 over .2; way (-.1, .1) over .2
    assert goal[0] == pytest.approx(np.array([[1.0, 0.0], [-0.5, 0.5]]), abs=1e-6)
    assert steering(world.observe(state), 2, 0.0)[0, 1] == pytest.approx([-0.5, -1.0], abs=1e-6)
    for _ in range(25):
        state, _ = world.step(state, steering(world.observe(state), 2, 1.0))
    assert state.positions == pytest.approx(state.landmarks[:, ::-1], abs=1e-3)  # coasting: .75 of the rest a step
    assert np.abs(state.velocities).max() < 2e-3


def test_the_nearest_of_the_five_directions() -> None:
    forces = np.array([[0.4, -0.3], [0.6, 0.2], [-0.2, -0.8], [-1.0, 0.9], [0.1, 0.7]])
    assert nearest_direction(forces).tolist() == [0, 2, 3, 1, 4]


def test_the_density_of_forces_integrates_to_one_and_is_that_of_the_draws() -> None:
    centre, skill = np.array([[[0.97, -0.2]]]), 0.6
    grid = (np.arange(400) + 0.5) / 200 - 1
    cells = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 1, 2)
    masses = force_density(cells, np.broadcast_to(centre, cells.shape), skill)[:, 0] / 200**2
    assert masses.sum() == pytest.approx(1, abs=1e-3)
    drawn, joint = spread_around(np.broadcast_to(centre, (20_000, 1, 2)), skill, np.random.default_rng(1))
    assert np.abs(drawn).max() <= 1.0
    assert joint == pytest.approx(force_density(drawn, centre, skill)[:, 0])
    for x in (0.7, 0.9, 0.95):
        assert (drawn[:, 0, 0] > x).mean() == pytest.approx(masses[cells[:, 0, 0] > x].sum(), abs=0.012)


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_qualities_are_ordered_and_their_probabilities_are_those_of_who_acted(actions: Any) -> None:
    simulator = ParticlesSimulator(3, actions)
    means = {}
    for name in simulator.behaviours:
        log = of(simulator.log(name, 300, seed=1))
        assert log.truncated[24::25].all()
        assert log.truncated.sum() == 300
        means[name] = log.returns(1.0).mean()
        assert (log.behaviour > 0).all()
        act = simulator.policy(name)
        assert (act is None) == (name == "medium_replay" or (actions == "continuous" and name != "expert"))
        if act is not None and actions == "discrete":
            rows = log.rows(np.arange(len(log)))
            chosen = np.take_along_axis(act(log.observations[rows], None), log.actions[..., None], -1)
            assert log.behaviour == pytest.approx(chosen[..., 0].prod(-1), rel=1e-5)
    assert means["random"] < means["medium_replay"] < means["medium"] < means["expert"]
    assert simulator.score(means["medium"]) == pytest.approx(50, abs=5)
    expert = simulator.policy("expert")
    assert expert is not None
    assert simulator.score(simulator.truth(expert).value) == pytest.approx(100, abs=4)


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_every_behaviour_has_a_true_value_that_its_log_agrees_with(actions: Any) -> None:
    """Also the replay of many skills, and experts whose forces are drawn around their rule."""
    simulator = ParticlesSimulator(2, actions)
    for name in simulator.behaviours:
        truth, returns = simulator.behaviour_truth(name), of(simulator.log(name, 1000, seed=5)).returns(1.0)
        error = np.hypot((truth.high - truth.low) / 3.92, returns.std() / np.sqrt(1000))
        assert 0 < abs(returns.mean() - truth.value) < 4 * error


def test_wrong_options_are_named() -> None:
    with pytest.raises(BadInput, match="n=1 of refork/Particles-v0"):
        open_simulator("refork/Particles-v0", {"n": 1})
    with pytest.raises(BadInput, match=r"options of refork/Particles-v0: actions: .*'discrete' or 'continuous'"):
        open_simulator("refork/Particles-v0", {"actions": "both"})
