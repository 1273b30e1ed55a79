"""RLlib: our environments, our network as a module, mirror descent as a learner, PPO as the baseline."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_critic import ValueCritic
from refork.agents.cross_graph_wiring import wire
from refork.cluster.local_ray import LocalRay
from refork.cluster.rllib import GRAPH_GAME, game_config, register_environments, results_in
from refork.cluster.rllib_env import GraphGameMultiAgentEnv
from refork.cluster.rllib_module import CrossGraphRLModule
from refork.cluster.rllib_pmd import KL_KEY, PMD, PMDConfig, PMDTorchLearner
from refork.envs.chain import ChainEnv
from refork.envs.graph_game.env import GraphGameEnv
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.instance import AGENTS
from refork.envs.graph_game.observe import NODE_FEATURES, SITE_FEATURES, observe

# isort: split
from ray.rllib.algorithms.ppo.ppo import PPOConfig
from ray.rllib.connectors.env_to_module.flatten_observations import FlattenObservations
from ray.rllib.core.columns import Columns
from ray.rllib.env.env_context import EnvContext
from ray.rllib.evaluation.postprocessing import Postprocessing
from ray.tune.registry import ENV_CREATOR, _global_registry

pytestmark = pytest.mark.ray

TASKS = ["charging-regular-n5-0", "vaccine-irregular-n7-1"]
NETWORK = {"width": 8, "heads": 2, "rounds": 1}


@pytest.fixture(scope="module")
def local_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    results_in(tmp_path_factory.mktemp("results"))
    cluster = LocalRay.start(1)
    yield
    cluster.stop()


def test_rllib_knows_every_environment() -> None:
    register_environments()
    chain = _global_registry.get(ENV_CREATOR, "refork/Chain-v0")(EnvContext({"task": "chain-3"}, 0))
    assert type(chain) is ChainEnv
    game = _global_registry.get(ENV_CREATOR, GRAPH_GAME)(EnvContext({"task": TASKS[0]}, 0))
    assert type(game) is GraphGameMultiAgentEnv
    assert _global_registry.contains(ENV_CREATOR, "refork/SWE-v0")


@pytest.mark.parametrize(
    ("env_id", "task", "agents"), [("refork/EqualLine-v0", "line-n3", 3), ("refork/Particles-v0", "spread-n3", 3)]
)
def test_other_environments_of_several_agents_are_themselves(env_id: str, task: str, agents: int) -> None:
    register_environments()
    env = _global_registry.get(ENV_CREATOR, env_id)(EnvContext({"task": task}, 0))
    seen, _ = env.reset(seed=1)
    assert len(seen) == agents
    over, steps = False, 0
    while not over:
        assert set(seen) == set(env.agents)
        moves = {agent: env.get_action_space(agent).sample() for agent in env.agents}
        seen, rewards, terminated, truncated, _ = env.step(moves)
        over, steps = terminated["__all__"] or truncated["__all__"], steps + 1
        assert len(rewards) == agents
    assert steps > 1


@pytest.mark.parametrize("options", [{"observe": "state"}, {"observe": "features", "factored": True}])
def test_rllib_trains_on_patients(options: dict[str, Any], local_ray: None) -> None:
    """State numbers need RLlib's own connector that flattens them; two actions a step are fine as they are."""
    register_environments()
    flatten = options["observe"] == "state"
    config = (
        PPOConfig()
        .environment("refork/SepsisSCM-v0", env_config={"task": "any", **options})
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=4,
            env_to_module_connector=(lambda *_, **__: FlattenObservations()) if flatten else None,
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=256, minibatch_size=128, num_epochs=1)
    )
    algorithm = config.build_algo()
    try:
        found = algorithm.train()["env_runners"]
        assert found["num_episodes"] > 5
        assert 1 <= found["episode_len_min"] <= found["episode_len_max"] <= 20
        assert -1 <= found["episode_return_mean"] <= 1
    finally:
        algorithm.stop()


def test_both_agents_act_in_every_step_and_end_in_the_last() -> None:
    env = GraphGameMultiAgentEnv({"task": TASKS[0], "noise": 0.2})
    plain = GraphGameEnv(TASKS[0], noise=0.2)
    observations, infos = env.reset(seed=3)
    plain.restore(env.game.snapshot(), noise="same")
    rng = np.random.default_rng(0)
    for t in range(20):
        assert list(observations) == list(infos) == env.agents == list(AGENTS)
        moves = {a: int(rng.choice(np.flatnonzero(o["action_mask"]))) for a, o in observations.items()}
        observations, rewards, terminated, truncated, infos = env.step(moves)
        assert rewards == plain.step(moves)[1]
        assert terminated == dict.fromkeys((*AGENTS, "__all__"), t == 19)
        assert truncated == dict.fromkeys((*AGENTS, "__all__"), False)
    assert env.agents == []
    assert list(observations) == list(AGENTS)  # the last observation is there as well


def test_games_of_several_sizes_share_their_spaces() -> None:
    env = GraphGameMultiAgentEnv({"tasks": TASKS})
    sizes = set()
    for seed in range(12):
        observations, _ = env.reset(seed=seed)
        sizes.add(int(observations["demand"]["node_mask"].sum()))
        for agent in AGENTS:
            assert env.get_observation_space(agent).contains(observations[agent])
    assert sizes == {5, 7}
    assert env.get_action_space("supply").n == 8


def test_seeds_decide_and_workers_differ() -> None:
    def demands(worker: int, seed: int) -> list[float]:
        env = GraphGameMultiAgentEnv(EnvContext({"tasks": TASKS, "noise": 0.4}, worker))
        env.reset(seed=seed)
        found = [float(env.game.game.demand.sum())]
        env.reset()
        return [*found, float(env.game.game.demand.sum())]

    assert demands(1, 5) == demands(1, 5)
    assert len({tuple(demands(worker, seed)) for worker, seed in ((1, 5), (2, 5), (1, 6), (2, 4))}) == 4
    assert len(set(demands(1, 5))) == 2


def modules(view: str) -> tuple[dict[str, CrossGraphRLModule], CrossGraph, ValueCritic, GraphGameMultiAgentEnv]:
    """RLModules with the weights of one network and critic."""
    env = GraphGameMultiAgentEnv({"tasks": TASKS, "view": view})
    network = CrossGraph((SITE_FEATURES, NODE_FEATURES), view=view, **NETWORK)  # type: ignore[arg-type]
    critic = ValueCritic(network, 8)
    made = {}
    for a, agent in enumerate(AGENTS):
        made[agent] = CrossGraphRLModule(
            observation_space=env.get_observation_space(agent),
            action_space=env.get_action_space(agent),
            model_config={"agent": agent, "network": {"view": view, **NETWORK}, "critic_width": 8},
        )
        made[agent].policy.load_state_dict(network.policies[a].state_dict())
        made[agent].critic.load_state_dict(critic.bodies[a].state_dict())
        made[agent].readout.load_state_dict(critic.heads[a].state_dict())
    return made, network, critic, env


@pytest.mark.parametrize("view", ["own", "masked", "unmasked"])
def test_a_module_says_what_our_network_says(view: str) -> None:
    """On a batch of two sizes: the module reads padded observations, the network the batched game."""
    made, network, critic, env = modules(view)
    game = Game([make_instance(task) for task in TASKS])
    for single in env.games:
        single.reset()
    for _ in range(3):
        for b, single in enumerate(env.games):
            single.step({"demand": b + 1, "supply": b})
        game.step(np.array([[1, 0], [2, 1]]))
    seen = observe(game)
    masks = tuple(torch.from_numpy(m) for m in seen.masks)
    features = (torch.from_numpy(seen.site).flatten(0, 1), torch.from_numpy(seen.node).flatten(0, 1))
    wiring = wire(game.topology, 1, network.heads)
    expected = network(features, wiring, masks)
    values = critic(features, wiring)
    for a, agent in enumerate(AGENTS):
        single_observations = [single.restore(single.snapshot())[agent] for single in env.games]
        batch = {
            Columns.OBS: {
                name: torch.from_numpy(np.stack([o[name] for o in single_observations]))
                for name in single_observations[0]
            }
        }
        found = made[agent].forward_train(batch)[Columns.ACTION_DIST_INPUTS]
        assert (found > -1e30).equal(masks[a])
        assert torch.allclose(found[masks[a]], expected[a][masks[a]], atol=1e-6)
        assert torch.allclose(made[agent].compute_values(batch), values[:, a], atol=1e-6)
        batch[Columns.OBS]["action_mask"] = torch.zeros_like(batch[Columns.OBS]["action_mask"])
        with pytest.raises(ValueError, match="leaves no move"):
            made[agent].forward_train(batch)


def config(update: Any, **more: Any) -> Any:
    options = {"games": 8, "parallel": 4, "minibatch": 4, "env": {"noise": 0.2}, "network": NETWORK, "critic_width": 8}
    return game_config(update, TASKS, **{**options, **more})


@pytest.mark.parametrize("update", ["pmd", "ppo"])
def test_two_iterations_train(update: Any, local_ray: None) -> None:
    algorithm = config(update).build_algo()
    try:
        before = {agent: weights(algorithm, agent) for agent in AGENTS}
        for iteration in range(2):
            result = algorithm.train()
            assert result["env_runners"]["num_episodes"] == 8
            assert result["env_runners"]["episode_len_mean"] == 20
            for agent in AGENTS:
                learned = result["learners"][agent]
                names = (
                    "policy_loss",
                    "vf_loss",
                    "entropy",
                    "total_loss",
                    KL_KEY if update == "pmd" else "mean_kl_loss",
                )
                assert all(math.isfinite(float(learned[name])) for name in names), learned
                assert float(learned[names[-1]]) > 0
                assert (float(learned.get("eta", 0.1)), learned["weights_seq_no"]) == (0.1, iteration + 1)
        for agent in AGENTS:
            after = weights(algorithm, agent)
            assert all(
                (after[name] != before[agent][name]).any() for name in before[agent] if name.startswith("policy")
            )
            assert all(np.isfinite(value).all() for value in after.values())
        episodes = algorithm.env_runner.sample(num_episodes=4)
        assert_masks_are_kept(episodes)
    finally:
        algorithm.stop()


def weights(algorithm: Any, agent: str) -> dict[str, np.ndarray]:
    return {name: value.copy() for name, value in algorithm.get_module(agent).get_state().items()}


def assert_masks_are_kept(episodes: list[Any]) -> None:
    """Whole games; every move is legal by the mask of the observation it was made on."""
    for episode in episodes:
        assert episode.is_terminated
        for agent in AGENTS:
            own = episode.agent_episodes[agent]
            assert (len(own), own.is_terminated, own.is_truncated) == (20, True, False)
            masks = own.get_observations()["action_mask"][:20]  # the last of 21 is of the end
            assert (masks[np.arange(20), own.get_actions()] == 1).all()
            scores = own.get_extra_model_outputs(Columns.ACTION_DIST_INPUTS)
            assert ((scores > -1e30) == masks.astype(bool)).all()


def learner() -> PMDTorchLearner:
    made = config("pmd", eta=0.5).build_learner(env=GraphGameMultiAgentEnv({"tasks": TASKS}))
    assert isinstance(made, PMDTorchLearner)
    return made


def test_the_learners_loss_by_hand() -> None:
    """-mean(ratio A) + KL(new || old) / eta on the stored mask, half the squared error; the extra step left out."""
    made = learner()
    observations = {
        name: torch.from_numpy(np.stack([value] * 3))
        for name, value in GraphGameMultiAgentEnv({"tasks": TASKS}).reset(seed=0)[0]["demand"].items()
    }
    mask = torch.tensor([[1, 1, 0, 0, 0, 0, 0, 1]] * 3, dtype=torch.int8)
    lowest = torch.finfo(torch.float32).min

    def scores(rows: list[list[float]]) -> torch.Tensor:
        full = torch.full((3, 8), lowest)
        full[:, [0, 1, 7]] = torch.tensor(rows).log()
        return full

    old = scores([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]])
    new = scores([[0.25, 0.25, 0.5], [0.2, 0.4, 0.4], [0.9, 0.05, 0.05]])
    batch = {
        Columns.OBS: {**observations, "action_mask": mask},
        Columns.ACTIONS: torch.tensor([7, 1, 0]),
        Columns.ACTION_DIST_INPUTS: old,
        Columns.LOSS_MASK: torch.tensor([True, True, False]),
        Postprocessing.ADVANTAGES: torch.tensor([1.0, -2.0, 50.0]),
        Postprocessing.VALUE_TARGETS: torch.tensor([3.0, 1.0, 99.0]),
    }
    module: Any = made.module["demand"].unwrapped()
    values = module.compute_values(batch)[:2].detach()
    loss = made.compute_loss_for_module(
        module_id="demand", config=made.config, batch=batch, fwd_out={Columns.ACTION_DIST_INPUTS: new}
    )
    surrogate = -(2.0 * 1.0 + 2.0 * -2.0) / 2
    kl = (0.25 * math.log(0.5) + 0.5 * math.log(2) + 0.4 * math.log(2) + 0.4 * math.log(2 / 3)) / 2
    critic = 0.5 * ((values[0] - 3) ** 2 + (values[1] - 1) ** 2) / 2
    assert float(loss.detach()) == pytest.approx(surrogate + kl / 0.5 + float(critic), rel=1e-5)


def test_a_checkpoint_holds_weights_optimiser_and_the_iteration(local_ray: None, tmp_path: Path) -> None:
    algorithm = config("pmd").build_algo()
    algorithm.train()
    algorithm.save_to_path(tmp_path)
    restored = PMD.from_checkpoint(tmp_path)
    states = [a.learner_group.get_state()["learner"] for a in (algorithm, restored)]
    for state in states:
        assert state["penalty"]["iteration"] == 1
    names = ("rl_module", "optimizer", "penalty", "weights_seq_no")
    first, second = (list(leaves({name: state[name] for name in names})) for state in states)
    assert len(first) == len(second) > 50
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    for made in (algorithm, restored):
        made.stop()


def leaves(state: Any) -> Iterator[np.ndarray]:
    if isinstance(state, dict | list | tuple):
        for part in state.values() if isinstance(state, dict) else state:
            yield from leaves(part)
    else:
        yield np.asarray(state)


@pytest.mark.parametrize("settings", [{"eta": 0.0}, {"eta_schedule": "target"}, {"tau": 1.0}, {"step": 1}])
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"eta|mirror descent in RLlib: no \['(tau|step)'\]"):
        PMDConfig().training(mirror=settings)


def test_episodes_are_never_cut() -> None:
    with pytest.raises(ValueError, match="games 9 must be a multiple of parallel 4"):
        config("pmd", games=9)
    made = config("ppo")
    assert made.rollout_fragment_length * made.num_envs_per_env_runner == made.train_batch_size_per_learner == 160


def test_results_go_where_they_are_told(local_ray: None, tmp_path: Path) -> None:
    results_in(tmp_path)
    algorithm = config("pmd").build_algo()
    algorithm.stop()
    assert Path(algorithm.logdir).parent == tmp_path
