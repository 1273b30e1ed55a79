"""Every environment by its id. Importing this module registers those for one agent with Gymnasium.

Those of several agents (PARALLEL) are PettingZoo environments, which Gymnasium's registry has no place for: `make_env`
makes them like all others, `parallel_env` the graph game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
from refork.envs.chain import ChainEnv
from refork.envs.clinical.patient import PatientEnv
from refork.envs.clinical.patient_models import icu_sepsis, sepsis_scm
from refork.envs.forkable import BadInput, ExecutionCache, ForkableEnv
from refork.envs.graph_game.env import GraphGameEnv
from refork.envs.multi.line_env import EqualLineEnv
from refork.envs.multi.particles_env import ParticlesEnv
from refork.envs.swe.env import SWEEnv
from refork.envs.swe.repair_menu import RepairMenuEnv
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.sandbox.opening import open_backend
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet

Software = TypeVar("Software", SWEEnv, RepairMenuEnv)


def _software(
    kind: type[Software],
    task: str | SWETask,
    backend: Backend | str = "overlay",
    cache: ExecutionCache | None = None,
    tasks: TaskSet | None = None,
    **options: Any,
) -> Software:
    tasks = tasks or TaskSet.open()
    chosen = tasks.get(task) if isinstance(task, str) else task
    if isinstance(backend, Backend):
        return kind(tasks, chosen, backend, cache, **options)
    opened = open_backend(backend)
    try:
        return kind(tasks, chosen, opened, cache, close_backend=True, **options)
    except BaseException:
        opened.close()
        raise


def make_swe(**options: Any) -> SWEEnv:
    """Keywords: task, backend, cache, tasks (a TaskSet; default: the one built by default), and SWEEnv's own."""
    return _software(SWEEnv, **options)


def make_repair_menu(**options: Any) -> RepairMenuEnv:
    """Keywords: task, backend, cache, tasks (a TaskSet; default: the one built by default), and RepairMenuEnv's own."""
    return _software(RepairMenuEnv, **options)


def make_chain(task: str = "chain-0", backend: None = None, **options: Any) -> ChainEnv:
    """Keywords: task, cache and ChainEnv's own. It has no sandbox."""
    return ChainEnv(task, **options)


def make_icu_sepsis(task: str = "any", cache: None = None, observe: Any = "state", **options: Any) -> PatientEnv:
    """Keywords: task, observe (PatientEnv's), and those of `patient_models.icu_sepsis`."""
    return PatientEnv(icu_sepsis(**options), task, observe=observe)


def make_sepsis_scm(task: str = "any", cache: None = None, observe: Any = "state", **options: Any) -> PatientEnv:
    """Keywords: task, observe (PatientEnv's), and those of `patient_models.sepsis_scm`."""
    return PatientEnv(sepsis_scm(**options), task, observe=observe)


def parallel_env(cache: None = None, **options: Any) -> GraphGameEnv:
    """Keywords: GraphGameEnv's own. A round is cheaper than any look-up in a cache."""
    return GraphGameEnv(**options)


def make_equal_line(task: str = "line-n5", cache: None = None) -> EqualLineEnv:
    """Keyword: task. A step is cheaper than any look-up in a cache."""
    return EqualLineEnv(task)


def make_particles(task: str = "spread-n3", cache: None = None) -> ParticlesEnv:
    """Keyword: task. A step is cheaper than any look-up in a cache."""
    return ParticlesEnv(task)


FACTORIES: dict[str, Callable[..., Any]] = {
    "refork/SWE-v0": make_swe,
    "refork/RepairMenu-v0": make_repair_menu,
    "refork/Chain-v0": make_chain,
    "refork/IcuSepsis-v0": make_icu_sepsis,
    "refork/SepsisSCM-v0": make_sepsis_scm,
}
PARALLEL: dict[str, Callable[..., Any]] = {
    "refork/GraphGame-v0": parallel_env,
    "refork/EqualLine-v0": make_equal_line,
    "refork/Particles-v0": make_particles,
}


def make_env(
    env_id: str, *, task: Any, backend: Any = None, cache: ExecutionCache | None = None, **options: Any
) -> ForkableEnv:
    """The environment itself, without Gymnasium's wrappers (which know nothing of going back).

    `task`: an id or a task; `backend`: an open backend, or the name of one that the environment opens and closes.
    Raises BadInput for an unknown id, task or option; InfraFailure and UnsupportedHost when it cannot be opened.
    """
    factories = FACTORIES | PARALLEL
    if env_id not in factories:
        raise BadInput(f"no environment {env_id!r}; there are: {', '.join(factories)}")
    given = {"task": task, "cache": cache, **options} | ({} if backend is None else {"backend": backend})
    try:
        return factories[env_id](**given)
    except TypeError as error:
        raise BadInput(f"options of {env_id}: {error}") from error


def register() -> None:
    """Make `gymnasium.make` know them; again is harmless."""
    for env_id, factory in FACTORIES.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=factory)


register()
