"""Jobs sent to a real job server: three nodes in a network of their own, the driver on the head, actors elsewhere."""

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

CHAIN = ("chain_small", "--trainer.updates", "20", "--checkpoint.every", "10")
ENDLESS = ("chain_small", "--trainer.updates", "100000", "--checkpoint.every", "100000")
ACTORS = ("--rollout.actors", "2", "--rollout.resources.sandbox", "1")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder:
        with Hosts(Path(folder) / "ray", job_server=True) as cluster:
            cluster.add("--num-cpus", "2")
            for _ in range(2):
                cluster.add("--num-cpus", "1", "--resources", '{"sandbox": 1}')
            yield cluster


def launch(hosts: Hosts, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        hosts.inside([str(REFORK), "launch", *arguments, "--address", hosts.job_server_address]),
        cwd=folder,
        env=environment(folder, **hosts.environment) | more,
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_a_launched_job_is_the_run_of_one_process(hosts: Hosts, tmp_path: Path) -> None:
    done = launch(hosts, tmp_path, *CHAIN, *ACTORS, "--runs", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stdout + done.stderr
    alone = tmp_path / "alone"
    alone.mkdir()
    assert refork(alone, "train", *CHAIN).returncode == 0
    assert rows(run_folder(tmp_path)) == rows(run_folder(alone))
