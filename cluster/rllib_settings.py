"""RLlib's settings of a job: the algorithm by name, `[trainer.options]` by group, the environment by family."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from refork.cluster.family import Family
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.registry import ALGORITHMS
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune import TuneError
from ray.tune.registry import get_trainable_cls
from refork.cluster.rllib import game_config
from refork.cluster.rllib_drawn_env import DrawnTaskEnv
from refork.cluster.rllib_pmd import PMD
from refork.envs.forkable import BadInput
from refork.envs.registry import FACTORIES
from refork.trainers.config import JobConfig

GROUPS = ("training", "env_runners", "learners", "offline_data", "reporting", "fault_tolerance")
"""Groups of RLlib's AlgorithmConfig that a job sets directly."""
ELSEWHERE = {
    "environment": "env.options",
    "rl_module": "agent.options",
    "evaluation": "evaluate.every",
    "checkpointing": "checkpoint.every",
    "debugging": "seed",
    "env_runners.num_env_runners": "rollout.actors",
    "learners.num_learners": "cluster.learners",
    "offline_data.input_": "env.tasks",
}
"""Keys of the job that say what RLlib would take there."""
GRADIENT_STEPS = 100
"""Of an iteration on a log, unless `offline_data.dataset_num_iters_per_learner` says otherwise."""
GAMES = 64
"""Games of an iteration, unless `training` says otherwise."""


def algorithm_config(job: JobConfig, family: Family) -> Any:
    """An AlgorithmConfig; that of a log still lacks its file. Raises BadInput naming the key that is wrong."""
    kind = algorithm_class(job.trainer.algorithm)  # type: ignore[attr-defined]
    if family.experience == "games":
        config = _on_games(job, family, kind)
    elif job.agent.kind != "rllib" or kind is PMD:
        raise BadInput(
            f"trainer.algorithm {job.trainer.algorithm}, agent.kind {job.agent.kind}: "  # type: ignore[attr-defined]
            "PMD and cross_graph are for games; set agent.kind to rllib and another algorithm"
        )
    else:
        config = kind.get_default_config()
        config = _on_log(config) if is_offline(config) else _on_tasks(job, family, config)
        config.rl_module(model_config=_model(job.agent.options))
    learners = job.cluster.learners if job.cluster.learners > 1 else 0
    config.env_runners(num_env_runners=job.rollout.actors).learners(num_learners=learners).debugging(
        seed=job.seed, log_level="ERROR"
    )
    return with_options(config, job.trainer.options)  # type: ignore[attr-defined]


def algorithm_class(name: str) -> Any:
    """Raises BadInput naming the nearest there is."""
    if name == "PMD":
        return PMD
    found = ALGORITHMS[name]()[0] if name in ALGORITHMS else _registered(name)
    if not (inspect.isclass(found) and issubclass(found, Algorithm)):
        raise BadInput(f"trainer.algorithm: RLlib has no {name!r}; {_nearest(name, ('PMD', *ALGORITHMS))}")
    return found


def _registered(name: str) -> Any:
    """One that a user's own package registered with Ray; None: nobody did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # looking it up imports all of RLlib's, and some of these warn
        try:
            return get_trainable_cls(name)
        except TuneError:
            return None


def is_offline(config: Any) -> bool:
    """It learns from a log alone."""
    from ray.rllib.algorithms.cql.cql import CQLConfig
    from ray.rllib.algorithms.marwil.marwil import MARWILConfig

    return isinstance(config, MARWILConfig | CQLConfig) or type(config).__name__ == "IQLConfig"


def with_options(config: Any, options: Mapping[str, Mapping[str, Any]]) -> Any:
    """`config` with the groups of `[trainer.options]` laid over. Raises BadInput."""
    for group, settings in options.items():
        _check(f"trainer.options.{group}", group, group, GROUPS)
        known = _parameters(config, group)
        for name in settings:
            _check(f"trainer.options.{group}.{name}", f"{group}.{name}", name, known)
            _check_number(f"trainer.options.{group}.{name}", getattr(config, name, None), settings[name])
        try:
            getattr(config, group)(**settings)
        except (TypeError, ValueError) as error:
            raise BadInput(f"trainer.options.{group}: {_line(error)}") from error
    try:
        config.copy(copy_frozen=False).validate()
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"trainer.options: RLlib says: {_line(error)}") from error
    return config


def _check_number(key: str, default: Any, value: Any) -> None:
    """Some of RLlib's numbers may be schedules, lists of [step, value]; RLlib itself takes "fast" for a bad one."""
    number = isinstance(default, int | float) and not isinstance(default, bool)
    if number and isinstance(value, str | bool | dict) and value != "auto":
        raise BadInput(f"{key}: must be a number, as {default!r}, got {value!r}")


def _check(key: str, path: str, name: str, known: Iterable[str]) -> None:
    if path in ELSEWHERE:
        raise BadInput(f"{key}: is set by {ELSEWHERE[path]}")
    if name not in known:
        raise BadInput(f"{key}: RLlib has no such setting; {_nearest(name, known)}")


def _parameters(config: Any, group: str) -> list[str]:
    """Keywords of `config.GROUP(...)`, those of its base classes too."""
    found: dict[str, None] = {}
    for base in type(config).__mro__:
        if group in vars(base):
            named = inspect.signature(vars(base)[group]).parameters.values()
            found |= dict.fromkeys(p.name for p in named if p.kind == p.KEYWORD_ONLY)
    return sorted(found)


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    folded = {other.lower(): other for other in names}
    near = get_close_matches(name.lower(), folded, 1, 0.5)
    return f"did you mean {folded[near[0]]}?" if near else f"there are: {', '.join(names)}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _model(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of RLlib's own networks."""
    known = [field.name for field in dataclasses.fields(DefaultModelConfig)]
    for name in options:
        _check(f"agent.options.{name}", name, name, known)
    return dict(options)


def _on_games(job: JobConfig, family: Any, kind: Any) -> Any:
    if job.agent.kind != "cross_graph":
        raise BadInput(
            f"agent.kind {job.agent.kind}: RLlib's own networks do not look at the mask of legal moves; "
            "set agent.kind to cross_graph"
        )
    update = {"PPO": "ppo", "PMD": "pmd"}.get(kind.__name__)
    if update is None:
        raise BadInput(f"trainer.algorithm {kind.__name__}: cross_graph is trained by PPO or PMD; choose one of them")
    o, tasks = family.source.options, family.names("train")
    parallel, runners = o.batch, max(job.rollout.actors, 1)
    games = max(GAMES // (parallel * runners), 1) * parallel * runners
    rules = {"noise": o.noise, "alignment": o.alignment, "clearing": o.clearing, "source": family.source}
    try:
        config = game_config(
            update,  # type: ignore[arg-type]
            tasks,
            env={**rules, **_largest(family.source, tasks, job.env.tasks is None)},
            network=job.agent.options,
            games=games,
            parallel=parallel,
            horizon=family.source.instance(tasks[0]).horizon,
        )
    except (TypeError, ValueError) as error:
        raise BadInput(f"[agent.options] of cross_graph: {_line(error)}") from error
    return config.env_runners(rollout_fragment_length=config.rollout_fragment_length // runners)


def _largest(source: Any, tasks: Iterable[str], generated: bool) -> dict[str, int]:
    """What all games are padded to; generated ones of a size are alike."""
    shown = {source.size(task): task for task in tasks}.values() if generated else tasks
    instances = [source.instance(task) for task in shown]
    return {"max_sites": max(i.sites for i in instances), "max_nodes": max(i.nodes for i in instances)}


def _on_tasks(job: JobConfig, family: Any, config: Any) -> Any:
    """Patients of a simulator, or tasks whose every choice is legal. Raises BadInput for what cannot be played."""
    env_id = job.env.id
    if env_id == "refork/Chain-v0":
        tasks, options = family.names("train"), dict(job.env.options)
    elif family.experience == "logs" and env_id in FACTORIES:
        tasks, options = ["any"], {"observe": "features", **family.source.options.simulator}
    elif family.experience == "logs":
        raise BadInput(f"trainer.algorithm {job.trainer.algorithm}: {env_id} is a log; choose BC or MARWIL")  # type: ignore[attr-defined]
    else:
        raise BadInput(
            f"env.id: {env_id} has moves that are not legal, which RLlib's own networks do not look at; use our own "
            "trainers crr or grpo"
        )
    return config.environment(DrawnTaskEnv, env_config={"id": env_id, "tasks": tasks, "options": options})


def _on_log(config: Any) -> Any:
    """Raises BadInput for what RLlib itself cannot learn from a log alone."""
    name = config.algo_class.__name__
    if name in ("CQL", "IQL"):
        raise BadInput(
            f"trainer.algorithm {name}: RLlib's needs continuous actions and an environment beside the log; choose BC "
            f"or MARWIL, or our own trainer.kind {name.lower()}"
        )
    return config.offline_data(dataset_num_iters_per_learner=GRADIENT_STEPS)
