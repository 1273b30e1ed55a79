"""The PettingZoo environment: its two checkers, views, padding, and going back."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test
from pettingzoo.test.seed_test import parallel_seed_test
from refork.envs.forkable import BadInput, ForkableEnv, Reward, StateMismatch, StateRef
from refork.envs.graph_game.env import GraphGameEnv
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.observe import COUPLED
from refork.envs.graph_game.seat import VIEWS
from refork.envs.registry import make_env, parallel_env

from tests.envs.graph_game.processes import outputs_by_hash_seed

TASKS = ("charging-regular-n6-0", "hydrogen-irregular-n7-3", "vaccine-irregular-n9-1")


def moves(observations: dict[str, Any], rng: np.random.Generator) -> dict[str, int]:
    return {agent: int(rng.choice(np.flatnonzero(seen["action_mask"]))) for agent, seen in observations.items()}


def played(env: GraphGameEnv, rounds: int, seed: int = 0) -> dict[str, Any]:
    """Observations after that many random rounds from a reset."""
    rng = np.random.default_rng(seed)
    observations, _ = env.reset(seed=seed)
    for _ in range(rounds):
        observations = env.step(moves(observations, rng))[0]
    return observations


def passed_to_the_end(env: GraphGameEnv) -> list[float]:
    passes = {agent: env.action_space(agent).n - 1 for agent in env.possible_agents}
    rewards = []
    while env.agents:
        rewards.append(env.step(passes)[1]["demand"])
    return rewards


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("task", TASKS)
def test_the_checkers_of_pettingzoo_find_nothing(task: str, view: Any) -> None:
    def make() -> GraphGameEnv:
        return GraphGameEnv(task, view=view, noise=0.3)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(make(), num_cycles=45)
        parallel_api_test(GraphGameEnv(task, view=view, max_sites=12, max_nodes=11), num_cycles=45)
        parallel_seed_test(make)


def test_the_order_of_agents_and_the_game_do_not_depend_on_the_hash_seed() -> None:
    script = (
        "from refork.envs.registry import parallel_env; env = parallel_env(task='vaccine-irregular-n8-2', noise=.2)\n"
        "seen, infos = env.reset(seed=5); out = env.step({'supply': 1, 'demand': 2})\n"
        "print(env.state_id, list(seen), list(infos), [list(o) for o in out], env.agents)"
        "\nprint(out[0]['demand']['own'].sum())"
    )
    outputs = outputs_by_hash_seed(script)
    assert len(outputs) == 1
    assert outputs.pop().count("['demand', 'supply']") == 8


def test_observations_lie_in_their_spaces_and_both_terminate_in_the_same_step() -> None:
    env = GraphGameEnv("hydrogen-regular-n6-1", max_sites=8, max_nodes=7)
    rng = np.random.default_rng(3)
    observations, _ = env.reset(seed=3)
    for t in range(20):
        for agent, seen in observations.items():
            assert env.observation_space(agent).contains(seen)
        assert env.agents == ["demand", "supply"]
        observations, _, terminated, truncated, _ = env.step(moves(observations, rng))
        assert terminated == dict.fromkeys(("demand", "supply"), t == 19)
        assert truncated == {"demand": False, "supply": False}
    assert env.agents == []
    with pytest.raises(RuntimeError, match="has ended"):
        env.step({"demand": 8, "supply": 7})


def test_views_share_the_game_and_differ_in_what_may_be_read() -> None:
    instance = make_instance("charging-irregular-n7-4")
    own, masked, unmasked = (GraphGameEnv(instance, view=view, max_nodes=9).reset(seed=0)[0] for view in VIEWS)
    coupling = np.zeros((7, 9), np.int8)
    coupling[instance.pairs[:, 0], instance.pairs[:, 1]] = 1
    assert (masked["demand"]["coupling"] == coupling).all()
    assert (masked["supply"]["coupling"] == coupling.T).all()
    assert not own["demand"]["coupling"].any()
    assert not own["demand"]["partner"].any()
    assert (unmasked["supply"]["coupling"] == np.pad(np.ones((7, 7)), ((0, 2), (0, 0)))).all()
    told = len(COUPLED)  # the last features, which only the coupling tells
    for seen in (masked, unmasked):
        assert (seen["demand"]["own"][:, :-told] == own["demand"]["own"][:, :-told]).all()
        assert (seen["demand"]["partner"][:, :-told] == seen["supply"]["own"][:, :-told]).all()
        assert not seen["demand"]["partner"][:, -told:].any()
        assert seen["demand"]["partner"].any()
    assert masked["demand"]["own"][:, -told:].any()
    for blind in (own, unmasked):
        assert not blind["demand"]["own"][:, -told:].any()


def test_the_own_graph_is_observed_undirected() -> None:
    instance = make_instance("hydrogen-regular-n6-1")
    seen, _ = GraphGameEnv(instance, max_sites=8).reset()
    roads = {(int(i), int(k)) for i, k in np.argwhere(seen["demand"]["adjacency"])}
    assert roads == {(int(i), int(k)) for e in instance.roads for i, k in (e, e[::-1])}
    links = {(int(i), int(k)) for i, k in np.argwhere(seen["supply"]["adjacency"])}
    assert links == {(int(i), int(k)) for e in instance.links for i, k in (e, e[::-1])}
    assert seen["demand"]["node_mask"].tolist() == [1] * 6 + [0] * 2


def test_padding_changes_nothing_but_the_sizes() -> None:
    plain, padded = GraphGameEnv(TASKS[0]), GraphGameEnv(TASKS[0], max_sites=10, max_nodes=8)
    for env, a, b in ((plain, 2, 6), (padded, 2, 8)):
        env.reset(seed=0)
        env.step({"demand": a, "supply": 3})
        env.step({"demand": env.action_space("demand").n - 1, "supply": b})
    assert plain.state_id == padded.state_id
    small, large = plain.step({"demand": 0, "supply": 0}), padded.step({"demand": 0, "supply": 0})
    assert small[1:] == large[1:]
    assert (large[0]["demand"]["own"][:6] == small[0]["demand"]["own"]).all()
    assert not large[0]["demand"]["own"][6:].any()
    assert large[0]["demand"]["action_mask"][6:].tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("actions", [{"demand": 6}, {"demand": 7, "supply": 0}, {"demand": -1, "supply": 0}])
def test_missing_and_illegal_moves_are_refused(actions: dict[str, int]) -> None:
    env = GraphGameEnv(TASKS[0], max_sites=8)
    env.reset()
    before = env.state_id
    with pytest.raises(ValueError, match=r"round 0: (no move of supply|move -1 of operator 0 is illegal)"):
        env.step(actions)
    assert env.state_id == before


def test_infos_tell_the_true_payoffs_whatever_the_alignment() -> None:
    seen = {}
    for alignment in ("identical", "potential", "general"):
        env = GraphGameEnv(TASKS[0], alignment=alignment)
        env.reset(seed=0)
        env.step({"demand": 1, "supply": 1})
        _, rewards, _, _, infos = env.step({"demand": 6, "supply": 0})
        seen[alignment] = rewards
        own = {agent: info["own"] for agent, info in infos.items()}
        assert infos["demand"]["welfare"] == infos["supply"]["welfare"] == pytest.approx(sum(own.values()))
        assert own == seen.get("own", own)
        seen["own"] = own
    assert seen["general"] == seen["own"]
    assert sum(seen["identical"].values()) == pytest.approx(sum(seen["own"].values()))


def test_it_can_go_back_also_elsewhere_and_by_json() -> None:
    env = GraphGameEnv(TASKS[2], noise=0.4)
    assert isinstance(env, ForkableEnv)
    before = played(env, 8)
    ref = env.snapshot()
    ref = StateRef(ref.state_id, json.loads(json.dumps(ref.payload)))
    grade = env.grade()
    rest = passed_to_the_end(env)
    for other in (env, GraphGameEnv(TASKS[2], noise=0.4)):
        seen = other.restore(ref, noise="same")
        assert other.state_id == ref.state_id
        assert other.grade() == grade
        assert other.agents == ["demand", "supply"]
        for agent, parts in before.items():
            assert all((seen[agent][name] == part).all() for name, part in parts.items())
        assert passed_to_the_end(other) == rest


def test_fresh_noise_keeps_what_was_seen_and_differs_every_time() -> None:
    env = GraphGameEnv(TASKS[2], noise=0.4)
    before = played(env, 8)
    ref = env.snapshot()
    demands = [env.game.demand]
    for _ in range(2):
        seen = env.restore(ref)
        assert env.state_id == ref.state_id
        assert (seen["demand"]["own"] == before["demand"]["own"]).all()
        demands.append(env.game.demand)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert (demands[a][:9] == demands[b][:9]).all()
        assert (demands[a][9:] != demands[b][9:]).all()
    passes = {"demand": 9, "supply": 9}
    env.step(passes)
    again = env.snapshot()  # of a state after a fresh draw
    rest = passed_to_the_end(env)
    env.restore(again, noise="same")
    assert passed_to_the_end(env) == rest


def test_fresh_draws_follow_from_the_seed_of_the_reset() -> None:
    demands = []
    for _ in range(2):
        env = GraphGameEnv(TASKS[2], noise=0.4)
        env.reset(seed=11)
        ref = env.snapshot()
        env.restore(ref)
        demands.append(env.game.demand)
    assert (demands[0] == demands[1]).all()
    assert (demands[0] != GraphGameEnv(TASKS[2], noise=0.4).game.demand).any()


def test_resets_without_a_seed_draw_new_demand() -> None:
    env = GraphGameEnv(TASKS[0], noise=0.4)
    env.reset(seed=1)
    first = env.game.demand
    env.reset()
    assert (env.game.demand != first).all()


def test_the_end_is_restored_as_an_end() -> None:
    env = GraphGameEnv(TASKS[0])
    played(env, 20)
    ref, grade = env.snapshot(), env.grade()
    env.reset()
    env.restore(ref)
    assert env.agents == []
    assert env.grade() == grade


def test_the_grade_is_the_welfare_so_far() -> None:
    env = GraphGameEnv(TASKS[1], alignment="potential")
    observations, _ = env.reset(seed=2)
    assert env.grade() == Reward(0.0)
    rng, welfare = np.random.default_rng(2), 0.0
    for _ in range(20):
        observations, *_, infos = env.step(moves(observations, rng))
        welfare += infos["supply"]["welfare"]
        before = env.state_id
        assert env.grade() == Reward(pytest.approx(welfare))
        assert env.state_id == before


def _changed(payload: dict[str, Any]) -> None:
    payload["state"]["node_level"][0][0] += 1


def _richer(payload: dict[str, Any]) -> None:
    payload["earned"][0] += 1.0


def _other_seed(payload: dict[str, Any]) -> None:
    payload["noise"]["seed"] += 1


@pytest.mark.parametrize("change", [_changed, _richer, _other_seed])
def test_a_state_that_is_not_its_id_is_a_mismatch(change: Callable[[dict[str, Any]], None]) -> None:
    env = GraphGameEnv(TASKS[0], noise=0.1)
    played(env, 4)
    payload = json.loads(json.dumps(env.snapshot().payload))
    change(payload)
    with pytest.raises(StateMismatch, match="round 4 restored is"):
        env.restore(StateRef(env.state_id, payload))


def test_a_reference_of_another_game_is_named() -> None:
    ref = GraphGameEnv(TASKS[0]).snapshot()
    with pytest.raises(StateMismatch, match="its instance is"):
        GraphGameEnv(TASKS[1]).restore(ref)
    with pytest.raises(StateMismatch, match=r"its noise is 0\.0, here it is 0\.5"):
        GraphGameEnv(TASKS[0], noise=0.5).restore(ref)


def test_state_ids_are_those_of_the_moves() -> None:
    ids = set()
    for first in range(7):
        env = GraphGameEnv(TASKS[0])
        env.step({"demand": first, "supply": 6})
        ids.add(env.state_id)
    assert len(ids) == 7
    env.reset()
    assert env.state_id == GraphGameEnv(TASKS[0], view="own").state_id != GraphGameEnv(TASKS[0], noise=0.1).state_id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "all"}, "view='all' of a graph game: expected one of own, masked, unmasked"),
        ({"alignment": "fair"}, "alignment='fair'"),
        ({"clearing": "lp"}, "clearing='lp'"),
        ({"noise": 1.0}, "noise=1.0"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"max_sites": 5}, "max_sites=5: the game 'charging-regular-n6-0' has 6 sites"),
        ({"max_nodes": 0}, "max_nodes=0"),
        ({"task": "charging-regular-n6"}, "names no graph game"),
        ({"colour": 1}, "options of refork/GraphGame-v0"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make_env("refork/GraphGame-v0", **({"task": TASKS[0]} | options))


def test_it_is_made_by_both_factories() -> None:
    assert type(parallel_env(task=TASKS[0])) is type(make_env("refork/GraphGame-v0", task=TASKS[0])) is GraphGameEnv
