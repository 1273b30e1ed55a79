"""A run on a Ray cluster that others started: three nodes, one of which dies; a run is what it is on one machine."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import REFORK, Hosts
from tests.scripts.commands import environment, refork, rows, run_folder

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
]

CHAIN = ("train", "chain_small", "--trainer.updates", "60", "--checkpoint.every", "10")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder, Hosts(Path(folder) / "ray") as cluster:
        cluster.add("--num-cpus", "2")
        for _ in range(2):
            cluster.add("--num-cpus", "1", "--resources", '{"sandbox": 1}')
        yield cluster


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    assert refork(folder, *CHAIN).returncode == 0
    return run_folder(folder)


def on(hosts: Hosts, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        hosts.inside([str(REFORK), *arguments, "--cluster.address", hosts.address]),
        cwd=folder,
        env=environment(folder, **hosts.environment) | more,
        capture_output=True,
        text=True,
        timeout=300,
    )


ON_SANDBOX_HOSTS = ("--rollout.actors", "2", "--rollout.resources.sandbox", "1")


def test_actors_on_other_nodes_play_the_run_of_one_process(hosts: Hosts, alone: Path, tmp_path: Path) -> None:
    done = on(hosts, tmp_path, *CHAIN, *ON_SANDBOX_HOSTS)
    assert done.returncode == 0, done.stderr
    assert rows(run_folder(tmp_path)) == rows(alone)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--rollout.actors", "9"), "9 rollout actors and 1 learners need 9 CPU, its 3 nodes have 4 in all"),
        (
            ("--rollout.actors", "2", "--rollout.cpus", "1.5"),
            "its nodes have room for 1 rollout actors of 1.5 CPU, not 2",
        ),
        (("--rollout.actors", "3", "--rollout.resources.sandbox", "1"), "need 3 sandbox, its 3 nodes have 2 in all"),
        (("--rollout.actors", "0"), "nothing of this job would run there; set rollout.actors or cluster.learners"),
    ],
)
def test_what_has_no_room_is_said_before_the_start(
    hosts: Hosts, tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    done = on(hosts, tmp_path, *CHAIN, *more)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_wrong_token_is_said(hosts: Hosts, tmp_path: Path) -> None:
    done = on(hosts, tmp_path, *CHAIN, "--rollout.actors", "1", RAY_AUTH_TOKEN="6" * 64)
    assert done.returncode == 2
    assert "not let in" in done.stderr.splitlines()[-1]
    assert "RAY_AUTH_TOKEN" in done.stderr.splitlines()[-1]
    assert "666" not in done.stderr
