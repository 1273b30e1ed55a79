"""Jobs sent to a real job server: two nodes in a network of their own, the driver on one, actors on the other."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from refork.scripts.bench.hosts import REFORK, Hosts

from tests.scripts.commands import environment, refork, rows, run_folder

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root"),
]

CHAIN = ("chain_small", "--trainer.updates", "20", "--checkpoint.every", "10")
ENDLESS = ("chain_small", "--trainer.updates", "100000", "--checkpoint.every", "100000")
ON_THE_OTHER = ("--rollout.actors", "2", "--rollout.resources.sandbox", "1")


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with (
        tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder,
        Hosts(Path(folder) / "ray", job_server=True) as cluster,
    ):
        cluster.add("--num-cpus", "2")
        cluster.add("--num-cpus", "2", "--resources", '{"sandbox": 2}')
        yield cluster


def command(hosts: Hosts, *arguments: str) -> list[str]:
    return hosts.inside([str(REFORK), "launch", *arguments, "--address", hosts.job_server_address])


def launch(hosts: Hosts, folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(hosts, *arguments),
        cwd=folder,
        env=environment(folder, **hosts.environment) | more,
        capture_output=True,
        text=True,
        timeout=200,
    )


def follow_until(hosts: Hosts, folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Launch a job and read its log as far as a line that begins with `text`."""
    following = subprocess.Popen(
        command(hosts, *arguments),
        cwd=folder,
        env=environment(folder, **hosts.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert any(line.startswith(text) for line in following.stdout), following.communicate()
    return following


def known(hosts: Hosts, folder: Path) -> list[list[str]]:
    """Every job of the cluster: id, status, date, time, name."""
    listed = launch(hosts, folder, "status", "--all")
    assert listed.returncode == 0, listed.stderr
    return [line.split() for line in listed.stdout.splitlines()]


def test_a_launched_job_is_the_run_of_one_process(hosts: Hosts, tmp_path: Path) -> None:
    done = launch(hosts, tmp_path, *CHAIN, *ON_THE_OTHER, "--runs", str(tmp_path / "runs"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"done: 816 episodes, 12581 steps; {run_folder(tmp_path)}" in done.stdout
    alone = tmp_path / "alone"
    alone.mkdir()
    assert refork(alone, "train", *CHAIN).returncode == 0
    assert rows(run_folder(tmp_path)) == rows(run_folder(alone))


def test_a_job_is_left_found_stopped_and_gone_on_with(hosts: Hosts, tmp_path: Path) -> None:
    runs = ("--runs", str(tmp_path / "runs"))
    following = follow_until(hosts, tmp_path, "update", *ENDLESS, *runs)
    following.send_signal(signal.SIGINT)
    _, said = following.communicate(timeout=30)
    submission, status, *_, name = known(hosts, tmp_path)[-1]
    assert (following.returncode, status, name) == (130, "RUNNING", "chain_small")
    assert f"it runs on: refork launch logs {submission} --follow" in said

    sent = list((hosts.folder / "session_latest/runtime_resources/working_dir_files").glob("_ray_pkg_*/*"))
    assert {path.name for path in sent} == {"job.toml"}

    stopped = launch(hosts, tmp_path, "stop", submission)
    assert stopped.stdout == f"{submission}: STOPPED\n"
    (checkpoint,) = (run_folder(tmp_path) / "checkpoints").iterdir()  # none was due: the one of its end
    updates = int(checkpoint.name.removeprefix("step-"))
    assert "refork: interrupted" in launch(hosts, tmp_path, "logs", submission).stdout
    assert launch(hosts, tmp_path, "logs", submission, "--follow").returncode == 130

    more = ("--trainer.updates", str(updates + 2), "--checkpoint.every", "100000", "--trainer.horizon", "0")
    resumed = launch(hosts, tmp_path, "chain_small", *more, *runs, "--resume")
    assert resumed.returncode == 0, resumed.stdout
    assert [row["step"] for row in rows(run_folder(tmp_path))] == list(range(1, updates + 3))


def test_the_exit_code_is_the_jobs(hosts: Hosts, tmp_path: Path) -> None:
    done = launch(hosts, tmp_path, *CHAIN, "--runs", "/proc/runs")
    assert done.returncode == 2
    assert "refork: /proc/runs: runs cannot be written here" in done.stdout
    submission, status = known(hosts, tmp_path)[-1][:2]
    assert status == "FAILED"
    assert "/proc/runs: runs cannot be written here" in launch(hosts, tmp_path, "status", submission).stdout


@pytest.mark.parametrize(
    ("more", "token", "said"),
    [
        (("--rollout.actors", "9"), None, "need 9 CPU, its 2 nodes have 4 in all"),
        (("--rollout.actors", "3", "--rollout.resources.sandbox", "1"), None, "need 3 sandbox, its 2 nodes have 2"),
        ((), "6" * 64, "not let in: Authentication failed"),
    ],
)
def test_what_the_cluster_cannot_take_is_not_sent(
    hosts: Hosts, tmp_path: Path, more: tuple[str, ...], token: str | None, said: str
) -> None:
    before = known(hosts, tmp_path)
    own = {"RAY_AUTH_TOKEN": token} if token else {}
    done = launch(hosts, tmp_path, *CHAIN, *more, "--runs", str(tmp_path / "runs"), **own)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert "666" not in done.stderr
    assert known(hosts, tmp_path) == before


def test_without_a_token_nothing_is_asked(hosts: Hosts, tmp_path: Path) -> None:
    done = launch(hosts, tmp_path, "status", "--all", RAY_AUTH_TOKEN="")
    assert done.returncode == 2
    assert "RAY_AUTH_TOKEN_PATH" in done.stderr.splitlines()[-1]


def test_an_unknown_job_is_said(hosts: Hosts, tmp_path: Path) -> None:
    for verb in ("status", "logs", "stop"):
        done = launch(hosts, tmp_path, verb, "nothing")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "nothing: no such job" in done.stderr


def test_another_server_is_no_job_server(hosts: Hosts, tmp_path: Path) -> None:
    gcs = hosts.inside([str(REFORK), "launch", "status", "--all", "--address", f"http://{hosts.address}"])
    done = subprocess.run(gcs, env=environment(tmp_path, **hosts.environment), capture_output=True, text=True)
    assert done.returncode == 2
    assert f"--address http://{hosts.address}: no job server of Ray" in done.stderr


def test_a_cluster_without_a_token_is_refused(tmp_path: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="hosts-", dir="/tmp") as folder,
        Hosts(Path(folder) / "ray", job_server=True) as open_to_all,
    ):
        open_to_all.add("--num-cpus", "1", environment={"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": ""})
        done = launch(open_to_all, tmp_path, *CHAIN, "--runs", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "takes requests without a token" in done.stderr
    assert "RAY_AUTH_MODE=token" in done.stderr


def test_the_address_may_be_where_rays_own_tools_look(tmp_path: Path) -> None:
    done = refork(tmp_path, "launch", "status", "--all", RAY_API_SERVER_ADDRESS="http://127.0.0.1:1")
    assert done.returncode == 2
    assert "--address http://127.0.0.1:1: nothing answers there" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trainer.updats", "3"), "--trainer.updats: unknown key; did you mean trainer.updates?"),
        ((), "--runs /shared/runs"),
        (("--runs", "/r", "--cluster.address", "auto"), "cluster.address: 'auto' is for refork train"),
        (("--runs", "/r"), "no address: give --address http://127.0.0.1:8265"),
        (("--runs", "/r", "--address", "ray://h:10001"), "ray://h:10001: must be the http address"),
        (("--runs", "/r", "--address", "http://127.0.0.1:1"), "http://127.0.0.1:1: nothing answers there"),
    ],
)
def test_what_is_wrong_here_is_said_before_a_cluster_is_asked(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    began = time.monotonic()
    done = refork(tmp_path, "launch", "chain_small", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert time.monotonic() - began < 30
