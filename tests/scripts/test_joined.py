"""A run on a Ray cluster that others started: three nodes, one of which dies; a run is what it is on one machine."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import committed, find
from refork.scripts.bench.hosts import REFORK, Hosts

from tests.scripts.commands import environment, refork, rows, run_folder, wait_for_checkpoint, wait_for_row

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
]

CHAIN = ("train", "chain_small", "--trainer.updates", "60", "--checkpoint.every", "10")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder, Hosts(Path(folder) / "ray") as cluster:
        cluster.add("--num-cpus", "2", environment=own_home(cluster))
        for _ in range(2):
            cluster.add(*SANDBOX_HOST, environment=own_home(cluster))
        yield cluster


def own_home(hosts: Hosts) -> dict[str, str]:
    """Of the next node: what hosts keep between runs is their own."""
    return {"REFORK_HOME": str(home_of(hosts, len(hosts.nodes)))}


def home_of(hosts: Hosts, number: int) -> Path:
    return hosts.folder.parent / f"home{number}"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    assert refork(folder, *CHAIN).returncode == 0
    return run_folder(folder)


def begin(hosts: Hosts, folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        hosts.inside([str(REFORK), *arguments, "--cluster.address", hosts.address]),
        cwd=folder,
        env=environment(folder, **hosts.environment) | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def on(hosts: Hosts, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    process = begin(hosts, folder, *arguments, **more)
    out, told = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, told)


SANDBOX_HOST = ("--num-cpus", "1", "--resources", '{"sandbox": 1}')
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


def test_what_dead_owners_left_on_any_node_goes_when_a_run_starts(hosts: Hosts, tmp_path: Path) -> None:
    left = [home_of(hosts, number) / "layers" / "p-abcdef" for number in range(3)]
    for private in left:
        private.mkdir(parents=True)
        (private / "owner").write_text("0-1-1")
    done = on(hosts, tmp_path, "train", "chain_small", "--trainer.updates", "1", "--rollout.actors", "1")
    assert done.returncode == 0, done.stderr
    assert [private.exists() for private in left] == [False] * 3


def test_a_node_that_dies_costs_nothing_but_time(hosts: Hosts, alone: Path, tmp_path: Path) -> None:
    """The run goes on with the node that is left, though it was to have two."""
    process = begin(hosts, tmp_path, *CHAIN, *ON_SANDBOX_HOSTS, "--trainer.updates", "600")
    run = wait_for_row(tmp_path, process, 3)
    hosts.kill(hosts.nodes[-1])
    _, told = process.communicate(timeout=180)
    hosts.add(*SANDBOX_HOST, environment=own_home(hosts))
    assert process.returncode == 0, told
    assert "rollout actor lost" in told
    assert rows(run)[:60] == rows(alone)
    assert [row["step"] for row in rows(run)] == list(range(1, 601))


def test_word_of_a_nodes_end_has_the_last_update_committed(hosts: Hosts, tmp_path: Path) -> None:
    """A spot notice, as an autoscaler or the machine itself gives it to Ray."""
    job = ("train", "chain_small", "--trainer.updates", "2000", "--checkpoint.every", "1999")
    process = begin(hosts, tmp_path, *job, "--cluster.learners", "4")  # on all nodes: an idle one goes at once
    run = wait_for_row(tmp_path, process, 3)
    hosts.drain(hosts.nodes[-1])
    checkpoint = wait_for_checkpoint(tmp_path, process) / "checkpoints"
    assert 3 <= read(committed(checkpoint)[-1]).step < 1999
    process.terminate()
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert read(find(run)).step >= rows(run)[-1]["step"] - 1


@pytest.mark.parametrize("token", ["6" * 64, ""])
def test_a_wrong_token_is_said(hosts: Hosts, tmp_path: Path, token: str) -> None:
    """In one line and soon, where Ray itself would try for 20 s."""
    began = time.monotonic()
    done = on(hosts, tmp_path, *CHAIN, "--rollout.actors", "1", RAY_AUTH_TOKEN=token)
    assert time.monotonic() - began < 15
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert "not let in" in said
    assert "RAY_AUTH_TOKEN" in said
    assert "666" not in said
