"""Every registered environment passes Gymnasium's checker, and is made or refused by one function."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from refork.envs.chain import ChainEnv
from refork.envs.clinical.patient import PatientEnv
from refork.envs.forkable import BadInput, ForkableEnv
from refork.envs.registry import FACTORIES, make_env
from refork.envs.swe.env import SWEEnv
from refork.envs.swe.repair_menu import RepairMenuEnv
from refork.envs.swe.sandbox.base import Backend, UnsupportedHost
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.taskset import TaskSet

from tests.envs.swe.toy import toy_tasks

CLASSES: dict[str, type] = {
    "refork/SWE-v0": SWEEnv,
    "refork/RepairMenu-v0": RepairMenuEnv,
    "refork/Chain-v0": ChainEnv,
    "refork/IcuSepsis-v0": PatientEnv,
    "refork/SepsisSCM-v0": PatientEnv,
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskSet:
    return toy_tasks(tmp_path_factory.mktemp("tasks"), "direction")


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    try:
        made = OverlayBackend(tmp_path_factory.mktemp("overlay") / "layers")
    except UnsupportedHost as error:
        pytest.skip(f"overlay: {error}")
    yield made
    made.close()


def options(env_id: str, tasks: TaskSet, backend: Backend) -> dict[str, Any]:
    if env_id == "refork/Chain-v0":
        return {"task": "chain-3"}
    if CLASSES[env_id] is PatientEnv:
        return {"task": "patient-3"}
    return {"task": tasks.tasks[0].instance_id, "tasks": tasks, "backend": backend}


@pytest.mark.parametrize("env_id", FACTORIES)
def test_the_checker_finds_nothing(env_id: str, tasks: TaskSet, backend: Backend) -> None:
    env = gymnasium.make(env_id, **options(env_id, tasks, backend))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("env_id", FACTORIES)
def test_made_without_wrappers(env_id: str, tasks: TaskSet, backend: Backend) -> None:
    env = make_env(env_id, **options(env_id, tasks, backend))
    assert type(env) is CLASSES[env_id]
    assert isinstance(env, ForkableEnv)
    env.close()


def test_a_backend_by_name_is_closed_with_the_environment(
    tasks: TaskSet, backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    closed: list[str] = []
    monkeypatch.setattr(OverlayBackend, "close", lambda self: closed.append(self.name))
    env = make_env("refork/SWE-v0", task=tasks.tasks[0], tasks=tasks, backend="overlay")
    assert closed == []
    env.close()
    assert closed == ["overlay"]
    with pytest.raises(BadInput, match="no_such_option"):
        make_env("refork/RepairMenu-v0", task=tasks.tasks[0], tasks=tasks, backend="overlay", no_such_option=1)
    assert closed == ["overlay", "overlay"]


def test_what_cannot_be_made_is_named(tasks: TaskSet, backend: Backend) -> None:
    with pytest.raises(BadInput, match=r"no environment 'refork/None-v0'; there are: refork/SWE-v0, refork/Rep"):
        make_env("refork/None-v0", task="x")
    with pytest.raises(BadInput, match="no task 'toy-none'"):
        make_env("refork/SWE-v0", task="toy-none", tasks=tasks, backend=backend)
    with pytest.raises(BadInput, match="no sandbox backend 'vm'; there are: overlay, docker, e2b, replay"):
        make_env("refork/SWE-v0", task=tasks.tasks[0], tasks=tasks, backend="vm")
