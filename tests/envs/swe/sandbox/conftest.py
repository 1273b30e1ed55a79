"""One suite for all backends: `sandbox` is opened at the base of `spec`, once per backend that works here."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from refork.envs.swe.sandbox.base import Backend, Sandbox, SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.manifest import digest_tree
from refork.envs.swe.sandbox.overlay import OverlayBackend

DISTRIBUTIONS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def _overlay(folder: Path) -> Backend:
    return OverlayBackend(folder / "layers")


def _docker(folder: Path) -> Backend:
    from refork.envs.swe.sandbox.docker import DockerBackend

    return DockerBackend(folder / "docker")


MAKERS: dict[str, Callable[[Path], Backend]] = {"overlay": _overlay, "docker": _docker}


def make_backend(name: str, folder: Path) -> Backend:
    """A backend that keeps what it keeps in `folder`; skips the test, saying why, where this host lacks a right."""
    try:
        return MAKERS[name](folder)
    except UnsupportedHost as error:
        pytest.skip(os.environ.get("REFORK_DOCKER_SKIPPED") or f"{name}: {error}")


@pytest.fixture(scope="session", params=["overlay", pytest.param("docker", marks=pytest.mark.docker)])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    made = make_backend(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the shapes that matter: nested folders, an executable, a link, an empty folder."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "pkg" / "inner").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "README").write_text("read me\n")
    (folder / "pkg" / "a.py").write_text("A = 1\n")
    (folder / "pkg" / "inner" / "b.py").write_text("B = 2\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("README")
    (folder / "test_it.py").write_text("def test_it():\n    assert 1 == 1\n\ndef test_not():\n    assert 1 == 2\n")
    return folder


@pytest.fixture(scope="session")
def python_env(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pytest in it, as the task builder makes one."""
    folder = tmp_path_factory.mktemp("env")
    folder.chmod(0o755)
    for name in DISTRIBUTIONS:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(distribution.locate_file(file)), folder / file)
    return folder


@pytest.fixture(scope="session")
def spec(base: Path, python_env: Path) -> SandboxSpec:
    return SandboxSpec(base, digest_tree(base), python_env=python_env)


@pytest.fixture
def sandbox(backend: Backend, spec: SandboxSpec) -> Iterator[Sandbox]:
    with backend.open(spec) as opened:
        yield opened
