"""RLlib as adapter and baseline: every environment registered, our network and mirror descent as its algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.algorithms.ppo.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env
from ray.tune.trainable import trainable
from refork.cluster.rllib_env import GraphGameMultiAgentEnv
from refork.cluster.rllib_module import CrossGraphRLModule
from refork.cluster.rllib_pmd import PMDConfig
from refork.envs.graph_game.instance import AGENTS
from refork.envs.graph_game.opening import open_instance
from refork.envs.registry import FACTORIES, PARALLEL, make_env

GRAPH_GAME = "refork/GraphGame-v0"


def register_environments() -> None:
    """Make RLlib know every environment by its id; `env_config` holds the keywords of its factory.

    Agents of the others are there from the first to the last step, so RLlib's own wrapper loses none.
    """
    for env_id in FACTORIES:
        register_env(env_id, lambda config, env_id=env_id: make_env(env_id, **config))
    for env_id in PARALLEL.keys() - {GRAPH_GAME}:
        register_env(env_id, lambda config, env_id=env_id: ParallelPettingZooEnv(make_env(env_id, **config)))
    register_env(GRAPH_GAME, GraphGameMultiAgentEnv)


def results_in(folder: Path) -> None:
    """Algorithms made from now on keep their results in `folder`; RLlib's own place is in the user's home."""
    trainable.DEFAULT_STORAGE_PATH = str(folder)


def game_config(
    update: Literal["pmd", "ppo"],
    tasks: Sequence[str],
    *,
    env: Mapping[str, Any] | None = None,
    network: Mapping[str, Any] | None = None,
    critic_width: int = 16,
    games: int = 64,
    parallel: int = 8,
    epochs: int = 4,
    minibatch: int = 16,
    learning_rate: float = 3e-3,
    gae_lambda: float = 0.95,
    eta: float = 0.1,
    seed: int = 0,
    horizon: int | None = None,
) -> PPOConfig:
    """RLlib's settings for both operators on those games, sampled and trained in one process.

    `env`: options of GraphGameMultiAgentEnv; `network`: of CrossGraph; `horizon`: rounds, None: as the first game has.
    An iteration plays `games` games, `parallel` side by side, and takes steps on `minibatch` games. Gradients, clip and
    penalties stay RLlib's defaults.
    Raises ValueError when `parallel` does not divide `games`.
    """
    if games % parallel:
        raise ValueError(f"games {games} must be a multiple of parallel {parallel}, or episodes would be cut")
    register_environments()
    network = {"view": "masked", **(network or {})}
    horizon = horizon or open_instance(tasks[0]).horizon
    config = PMDConfig().training(mirror={"eta": eta}) if update == "pmd" else PPOConfig()
    modules = {
        agent: RLModuleSpec(
            module_class=CrossGraphRLModule,
            model_config={"agent": agent, "network": network, "critic_width": critic_width},
        )
        for agent in AGENTS
    }
    return (
        config.environment(
            GRAPH_GAME,
            env_config={"tasks": list(tasks), "view": network["view"], **(env or {})},
            disable_env_checking=True,  # it makes moves without looking at the mask
        )
        .env_runners(
            num_env_runners=0, num_envs_per_env_runner=parallel, rollout_fragment_length=games // parallel * horizon
        )
        .learners(num_learners=0)
        .multi_agent(policies=set(AGENTS), policy_mapping_fn=lambda agent, *_, **__: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=modules))
        .training(
            gamma=1.0,
            lambda_=gae_lambda,
            lr=learning_rate,
            num_epochs=epochs,
            minibatch_size=minibatch * horizon,
            train_batch_size_per_learner=games * horizon,
            vf_clip_param=float("inf"),
        )
        .debugging(seed=seed)
    )
