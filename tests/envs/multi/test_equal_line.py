"""Equal Line: rewards by hand, the published returns of random agents, four qualities of logs."""

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.envs.multi.equal_line import MOVES, EqualLine, Line, LineState
from refork.envs.multi.rollout import mean_return, play
from refork.envs.simulators import open_simulator
from refork.replay.transitions import of

PUBLISHED = {2: 2.38, 3: 1.90, 5: 1.07, 6: 0.73, 8: 0.37, 10: 0.23}
"""Returns of random agents, of an unknown number of episodes."""


def test_a_step_by_hand() -> None:
    line = Line(3)  # L = 10, slots 5 apart
    state = LineState(np.array([[0.0, 1.0, 9.95]]), np.zeros(1))
    up, down, still = (int(np.flatnonzero(move == MOVES)[0]) for move in (0.1, -0.5, 0))
    state, first = line.step(state, np.array([[still, still, up]]))
    assert state.positions.tolist() == [[0.0, 1.0, 10.0]]  # stopped at the end
    assert first == pytest.approx([10 * 1.0 / 5])
    state, second = line.step(state, np.array([[down, down, down]]))
    assert state.positions.tolist() == [[0.0, 0.5, 9.5]]
    assert second == pytest.approx([10 * -0.5 / 5])
    assert line.observe(state).tolist() == [pytest.approx([0.0, 0.05, 0.95])]


@pytest.mark.parametrize("n", PUBLISHED)
def test_random_agents_earn_what_was_published(n: int) -> None:
    """Within 3 standard errors of some 250 published episodes and ours, and 8 % of the figure."""
    line = Line(n)
    returns = play(line, line.draw(0.0), 10_000, np.random.default_rng(n)).rewards.sum(1)
    error = returns.std() * np.sqrt(1 / 250 + 1 / len(returns))
    assert abs(returns.mean() - PUBLISHED[n]) < min(3 * error, 0.08 * PUBLISHED[n])


@pytest.mark.parametrize("n", [2, 5, 10])
def test_a_return_is_the_last_distance_and_equal_spacing_is_worth_ten(n: int) -> None:
    line = Line(n)
    played = play(line, line.draw(0.0), 50, np.random.default_rng(0))
    last = np.diff(np.sort(played.observations[:, -1].astype(float), -1), axis=-1).min(-1) * (n - 1)
    assert played.rewards.sum(1) == pytest.approx(10 * last, abs=1e-4)
    equal = LineState(np.linspace(0, line.length, n)[None], np.zeros(1))
    assert line.step(equal, np.full((1, n), 5))[1] == pytest.approx([10.0])
    expert = mean_return(line, line.draw(1.0), 100, 0).value
    assert 9.9 < expert <= 10.0


def test_the_rule_takes_the_move_that_ends_nearest_to_its_slot() -> None:
    line = Line(3)
    seen = np.array([[0.97, 0.1, 0.102]], np.float32)  # slots of the ranks 2, 0, 1: 10, 0, 5
    assert MOVES[line.rule(seen, 1.0)].tolist() == [[0.5, -1.0, 1.0]]
    assert MOVES[line.rule(seen, 0.0)].tolist() == [[-1.0, -1.0, -1.0]]


def test_qualities_are_ordered_and_their_probabilities_are_those_of_who_acted() -> None:
    simulator = EqualLine(4)
    means = {}
    for name in simulator.behaviours:
        log = of(simulator.log(name, 400, seed=1))
        assert log.truncated.sum() == 400
        assert log.truncated[49::50].all()
        assert not log.terminated.any()
        means[name] = log.returns(1.0).mean()
        if (act := simulator.policy(name)) is not None:
            rows = log.rows(np.arange(len(log)))
            chosen = np.take_along_axis(act(log.observations[rows], None), log.actions[..., None], -1)
            assert log.behaviour == pytest.approx(chosen[..., 0].prod(-1), rel=1e-5)
    assert means["random"] < means["medium_replay"] < means["medium"] < means["expert"]
    assert simulator.score(means["medium"]) == pytest.approx(50, abs=5)
    assert simulator.score(means["expert"]) == pytest.approx(100, abs=1)
    assert simulator.policy("medium_replay") is None


def test_the_truth_of_a_behaviour_is_the_mean_of_its_log() -> None:
    simulator = EqualLine(3)
    act = simulator.policy("medium")
    assert act is not None
    truth = simulator.truth(act, seed=3)
    assert not truth.exact
    returns = of(simulator.log("medium", 4000, seed=5)).returns(1.0)
    assert truth.low - 0.1 < returns.mean() < truth.high + 0.1
    assert truth.low < truth.value < truth.high
    assert truth == simulator.truth(act, seed=3)


def test_an_agent_sees_its_place_among_its_neighbours() -> None:
    line = Line(3, "neighbours")  # spacing 5
    state = LineState(np.array([[6.0, 1.0, 8.0]]), np.zeros(1))
    seen = line.observe(state)[0]
    assert seen[0] == pytest.approx([0.6, 0.5, 1.0, 0.4, 0.4])
    assert seen[1] == pytest.approx([0.1, 0.0, 0.2, 1.0, 0.4])
    assert seen[2] == pytest.approx([0.8, 1.0, 0.4, 0.4, 0.4])
    assert line.spec.observation.per_agent
    plain = Line(3)
    for spread in (0.5, 1.0):
        assert (line.rule(seen[None], spread) == plain.rule(plain.observe(state), spread)).all()
    same = [mean_return(world, world.draw(0.5), 50, 3) for world in (line, plain)]
    assert same[0] == same[1]


def test_wrong_options_are_named() -> None:
    for n in (1, 65):
        with pytest.raises(BadInput, match=f"n={n} of refork/EqualLine-v0"):
            open_simulator("refork/EqualLine-v0", {"n": n})
    for options in ({"n": 2.5}, {"agents": 3}):
        with pytest.raises(BadInput, match="options of refork/EqualLine-v0: "):
            open_simulator("refork/EqualLine-v0", options)
    with pytest.raises(BadInput, match="no behaviour 'good' of refork/EqualLine-v0; there are: medium_replay"):
        EqualLine().log("good", 3, 0)
