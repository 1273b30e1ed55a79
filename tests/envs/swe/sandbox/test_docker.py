"""Containers: nothing is left behind, nothing leaks between commands or tasks, failures are infra failures."""

from __future__ import annotations

import ast
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.owner import owner
from refork.envs.swe import images
from refork.envs.swe.sandbox import docker_boot, docker_client
from refork.envs.swe.sandbox.base import SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.docker import DockerBackend, DockerSandbox
from refork.envs.swe.sandbox.docker_client import LABEL, MACHINE_LABEL, connect, create_started, machine, sweep
from refork.envs.swe.sandbox.docker_probe import daemon_findings
from refork.envs.swe.sandbox.manifest import digest_tree

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerBackend]:
    try:
        made = DockerBackend(tmp_path_factory.mktemp("docker"))
    except UnsupportedHost as error:
        pytest.skip(os.environ.get("REFORK_DOCKER_SKIPPED") or str(error))
    yield made
    made.close()


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> SandboxSpec:
    base = tmp_path_factory.mktemp("base")
    (base / "pkg").mkdir()
    (base / "pkg" / "a.py").write_text("A = 1\n")
    (base / "README").write_text("read me\n")
    return SandboxSpec(base, digest_tree(base), preload=())


@pytest.fixture
def sandbox(backend: DockerBackend, spec: SandboxSpec) -> Iterator[DockerSandbox]:
    with backend.open(spec) as opened:
        yield opened


def ours(backend: DockerBackend, label: str | None = None) -> list[str]:
    """Names of containers that carry an owner label, in any state."""
    found = backend.client.containers(all=True, filters={"label": f"{LABEL}={label}" if label else LABEL})
    return [c["Names"][0] for c in found]


def wait_until(condition: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)


def python(sandbox: DockerSandbox, code: str) -> str:
    result = sandbox.run(["python", "-c", code])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_killed_owner_s_containers_end_by_themselves_and_a_sweep_leaves_none(
    backend: DockerBackend, spec: SandboxSpec, tmp_path: Path
) -> None:
    code = f"""
import sys, time
from pathlib import Path
from refork.envs.owner import owner
from refork.envs.swe.sandbox.base import SandboxSpec
from refork.envs.swe.sandbox.docker import DockerBackend
backend = DockerBackend(Path({str(tmp_path)!r}))
spec = SandboxSpec(Path({str(spec.base)!r}), {spec.base_id!r}, preload=())
held = [backend.open(spec) for _ in range(3)]
print(owner(), flush=True)
held[0].run(["sleep", "600"])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        label = child.stdout.readline().strip()
        assert len(ours(backend, label)) >= 3
        child.send_signal(signal.SIGKILL)
    running = {"label": f"{LABEL}={label}", "status": "running"}
    wait_until(lambda: not backend.client.containers(filters=running))
    sweep(backend.client)
    wait_until(lambda: not ours(backend, label))


def test_sweep_removes_what_a_dead_owner_only_created(backend: DockerBackend, spec: SandboxSpec) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        labels = {LABEL: owner(child.pid), MACHINE_LABEL: machine()}
        image = images.local_image(backend.client, None)
        orphan = backend.client.create_container(image, ["true"], labels=labels)["Id"]
        other = backend.client.create_container(image, ["true"], labels={LABEL: "x-1-1", MACHINE_LABEL: "other"})["Id"]
        assert orphan not in sweep(backend.client)
        child.kill()
    assert sweep(backend.client) == [orphan]
    assert sweep(backend.client) == []
    backend.client.remove_container(other)


def test_a_container_that_cannot_start_is_removed(backend: DockerBackend, tmp_path: Path) -> None:
    before = ours(backend)
    config = {
        "Image": images.local_image(backend.client, None),
        "Cmd": ["/no/such/program"],
        "Labels": {LABEL: owner()},
    }
    with pytest.raises(InfraFailure, match="no such file or directory"):
        create_started(backend.client, config, tmp_path)
    assert ours(backend) == before


def test_a_dead_container_is_an_infra_failure_and_restore_recovers(sandbox: DockerSandbox) -> None:
    sandbox.put({"/testbed/x": b"1"})
    ref = sandbox.snapshot()
    name = sandbox.container_name
    threading.Timer(0.3, sandbox._backend.client.kill, [name]).start()
    with pytest.raises(InfraFailure, match=f"container {name} died"):
        sandbox.run(["sleep", "30"])
    with pytest.raises(InfraFailure, match=name):
        sandbox.run(["true"])
    sandbox.restore(ref)
    assert sandbox.container_name != name
    assert sandbox.get("/testbed/x") == b"1"
    assert sandbox.state_id == ref.state_id


def test_creation_is_bounded(tmp_path: Path) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def make() -> None:
        nonlocal running, most
        with docker_client.creation_slot(tmp_path):
            with lock:
                running += 1
                most = max(most, running)
            time.sleep(0.02)
            with lock:
                running -= 1

    threads = [threading.Thread(target=make) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == docker_client.CREATES_AT_ONCE


class Overloaded:
    """A daemon that fails `failures` times with `status`, then works; remembers the names it was asked for."""

    def __init__(self, status: int, failures: int) -> None:
        self.status, self.failures, self.names = status, failures, list[str]()

    def create_container_from_config(self, config: Any, name: str) -> None:
        self.names.append(name)
        if len(self.names) <= self.failures:
            response = type("Response", (), {"status_code": self.status, "reason": "busy"})()
            raise docker.errors.APIError("failed", response=response, explanation="daemon says no")

    def attach_socket(self, name: str, params: Any) -> str:
        return "stream"

    def start(self, name: str) -> None:
        return None

    def remove_container(self, name: str, **_: Any) -> None:
        return None


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr(docker_client.time, "sleep", pauses.append)
    return pauses


@pytest.mark.parametrize("status", [500, 409, 429])
def test_an_overloaded_daemon_is_asked_again_later(status: int, no_pause: list[float], tmp_path: Path) -> None:
    daemon = Overloaded(status, failures=3)
    name, _ = create_started(daemon, {"Image": "i"}, tmp_path)
    assert len(set(daemon.names)) == 4
    assert name == daemon.names[-1]
    assert len(no_pause) == 3
    assert no_pause[2] > no_pause[0] / 2


def test_a_daemon_that_stays_overloaded_is_an_infra_failure(no_pause: list[float], tmp_path: Path) -> None:
    daemon = Overloaded(503, failures=99)
    with pytest.raises(InfraFailure, match=r"image some/image .*daemon says no"):
        create_started(daemon, {"Image": "some/image"}, tmp_path)
    assert len(daemon.names) == docker_client.ATTEMPTS


def test_an_error_that_will_not_pass_is_not_tried_again(no_pause: list[float], tmp_path: Path) -> None:
    daemon = Overloaded(400, failures=99)
    with pytest.raises(InfraFailure, match="daemon says no"):
        create_started(daemon, {"Image": "i"}, tmp_path)
    assert len(daemon.names) == 1


def test_a_missing_image_is_an_infra_failure_that_names_it(backend: DockerBackend, spec: SandboxSpec) -> None:
    missing = SandboxSpec(spec.base, spec.base_id, image="localhost:9/no/such-image:v1")
    with pytest.raises(InfraFailure, match="image localhost:9/no/such-image:v1 is not there"):
        backend.open(missing)


def test_a_pull_limit_is_explained() -> None:
    response = type("Response", (), {"status_code": 429, "reason": "Too Many Requests"})()
    error = docker.errors.APIError("x", response=response, explanation="toomanyrequests: rate limit")
    assert docker_client.explain(error).endswith("log in with `docker login`, or wait)")


def test_a_full_disk_is_an_infra_failure(sandbox: DockerSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = {"code": 0, "killed_by": None, "wall_s": 0.1, "head": 0, "total": 0, "free_bytes": 1000}
    monkeypatch.setattr(sandbox._live(), "ask", lambda *_, **__: (reply, b""))
    with pytest.raises(InfraFailure, match=r"disk .* is full"):
        sandbox.run(["true"])


def test_no_daemon_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(UnsupportedHost, match=r"none.sock cannot be used: .*No such file.*start the daemon") as caught:
        connect()
    assert "overlay backend" in str(caught.value)
    findings = DockerBackend.probe()
    assert [f.ok for f in findings] == [False]


def test_only_the_workspace_and_tmp_are_writable(sandbox: DockerSandbox) -> None:
    code = """
import os
for folder, _, _ in os.walk("/", topdown=True):
    if not folder.startswith(("/proc", "/sys", "/testbed", "/tmp")) and os.access(folder, os.W_OK):
        print(folder)
"""
    assert sorted(python(sandbox, code).split()) == ["/dev/mqueue", "/dev/shm"]


def test_the_supervisor_is_out_of_reach(sandbox: DockerSandbox) -> None:
    code = """
import os, signal
def refused(action):
    try:
        action()
    except OSError as error:
        return error.errno
    return 0
print(refused(lambda: os.kill(1, signal.SIGKILL)), refused(lambda: os.kill(1, 0)))
print(refused(lambda: open("/proc/1/mem", "rb")), refused(lambda: os.listdir("/proc/1/fd")))
print(refused(lambda: open("/proc/1/environ", "rb")), refused(lambda: os.readlink("/proc/1/root")))
print(sorted(os.listdir("/proc/self/fd")))
"""
    assert python(sandbox, code).splitlines() == ["1 1", "13 13", "13 13", "['0', '1', '2', '3']"]


def test_the_daemon_and_its_socket_are_out_of_sight(sandbox: DockerSandbox) -> None:
    code = (
        'import os; print([p for p in ("/var/run/docker.sock", "/run/docker.sock") if os.path.exists(p)], os.getuid())'
    )
    assert python(sandbox, code) == "[] 1000\n"


def test_root_imports_nothing_that_the_user_can_write(tmp_path: Path) -> None:
    module = json.dumps([["m", "import sys\ndef main(path):\n    print(sys.path)\n    print(path)"]]).encode()
    done = subprocess.run(
        [sys.executable, "-c", docker_boot.BOOT],
        input=struct.pack(">I", len(module)) + module,
        env={"PYTHONPATH": "/opt/env:/testbed/src:/tmp"},
        capture_output=True,
        cwd=tmp_path,
        check=True,
    )
    used, full = (ast.literal_eval(line) for line in done.stdout.decode().splitlines())
    assert full[:3] == ["/opt/env", "/testbed/src", "/tmp"]
    assert used == [p for p in full if not p.startswith(("/testbed", "/tmp"))]


def test_code_of_the_workspace_is_on_the_path_of_warm_commands(backend: DockerBackend, spec: SandboxSpec) -> None:
    inside = SandboxSpec(
        spec.base, spec.base_id, environment={"PYTHONPATH": "/opt/env:/testbed/pkg"}, preload=("timeit",)
    )
    with backend.open(inside) as sandbox:
        for warm in (False, True):
            command = ["python", "-m", "timeit", "-n1", "-r1", "import a, sys; print(a.A, sys.path[1:4])"]
            lines = sandbox.run(command, warm=warm).output.splitlines()
            assert lines[0] == "1 ['/testbed', '/opt/env', '/testbed/pkg']"


SHARED_MEMORY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(4711, 4096, 0o1666), libc.semget(4712, 1, 0o1666), libc.msgget(4713, 0o1666))
open("/dev/shm/left", "w").write("behind")
os.close(os.open("/dev/mqueue/left", os.O_CREAT | os.O_RDWR))
"""
FIND_SHARED = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(4711, 0, 0), libc.semget(4712, 0, 0), libc.msgget(4713, 0))
print(os.listdir("/dev/shm"), os.listdir("/dev/mqueue"))
"""


def test_shared_memory_does_not_outlive_a_command(sandbox: DockerSandbox) -> None:
    made = python(sandbox, SHARED_MEMORY)
    assert "-1" not in made.split()
    assert python(sandbox, FIND_SHARED) == "-1 -1 -1\n[] []\n"


def test_a_container_keeps_nothing_of_its_last_sandbox(
    backend: DockerBackend, spec: SandboxSpec, tmp_path: Path
) -> None:
    (tmp_path / "only.txt").write_text("other task")
    other = SandboxSpec(tmp_path, digest_tree(tmp_path), preload=())
    with backend.open(spec) as first:
        name = first.container_name
        first.run(
            ["sh", "-c", "mkdir -p d/e; echo s > d/e/secret; cp d/e/secret /tmp/; chmod 0 d; ln -s /etc l; mkfifo p"]
        )
    with backend.open(other) as second:
        assert second.container_name == name
        assert second.run(["find", "/testbed", "/tmp"]).output.split() == ["/testbed", "/testbed/only.txt", "/tmp"]
        assert second.changes == {}


def test_an_episode_of_200_snapshots_can_be_restored_anywhere(sandbox: DockerSandbox) -> None:
    refs = []
    for step in range(200):
        sandbox.run(["sh", "-c", f"echo {step} >> log"])
        refs.append(sandbox.snapshot())
    assert len({ref.state_id for ref in refs}) == 200
    for step in (0, 199, 73):
        sandbox.restore(refs[step])
        assert sandbox.get("/testbed/log").split() == [str(n).encode() for n in range(step + 1)]


def test_every_kind_of_file_comes_back_with_its_mode(sandbox: DockerSandbox) -> None:
    made = """
mkdir -p d/e; echo x > d/e/f; chmod 4751 d/e/f; chmod 2700 d; ln -s nowhere l; mkfifo -m 640 p; rm -r pkg; echo n > pkg
python -c "import socket; socket.socket(socket.AF_UNIX).bind('s')"
chmod 1777 d/e; printf 'a\\0b' > "$(printf 'n\\377\\n')"
"""
    assert sandbox.run(["sh", "-c", made]).exit_code == 0
    ref = sandbox.snapshot()
    changes = dict(sandbox.changes)
    assert changes["/testbed/d/e/f"].mode == 0o4751
    assert "/testbed/pkg/a.py" not in changes
    sandbox.run(["sh", "-c", "rm -rf d l p s n* pkg; mkdir p"])
    sandbox.restore(ref)
    assert sandbox.changes == changes
    with sandbox.fork() as fork:
        assert fork.state_id == ref.state_id


def test_a_damaged_state_is_refused_with_the_first_difference(sandbox: DockerSandbox) -> None:
    sandbox.put({"/testbed/a": b"one", "/testbed/b": b"two"})
    ref = sandbox.snapshot()
    entry = sandbox.changes["/testbed/b"]
    blob = sandbox._backend.folder / "blobs" / entry.digest
    blob.write_bytes(b"bad")
    sandbox.put({"/testbed/b": None})
    with pytest.raises(StateMismatch, match=r"/testbed/b: content .* is kept where the state has"):
        sandbox.restore(ref)
    assert set(sandbox.changes) == {"/testbed/a"}
    blob.write_bytes(b"two")
    sandbox.restore(ref)


def test_a_state_that_is_not_kept_is_an_infra_failure(sandbox: DockerSandbox) -> None:
    with pytest.raises(InfraFailure, match="state 000000000000 is not kept"):
        sandbox.restore(StateRef("0" * 64))


def test_states_live_as_long_as_someone_has_them(backend: DockerBackend, spec: SandboxSpec, tmp_path: Path) -> None:
    folder = tmp_path / "states"
    first, second = DockerBackend(folder, spare=0), DockerBackend(folder, spare=0)
    with first.open(spec) as sandbox, second.open(spec) as other:
        sandbox.put({"/testbed/both": b"both"})
        both = sandbox.snapshot()
        other.put({"/testbed/both": b"both"})
        assert other.snapshot() == both
        sandbox.put({"/testbed/kept": b"kept"})
        kept = sandbox.snapshot()
        first.retain(kept)
        sandbox.put({"/testbed/lost": b"lost"})
        lost = sandbox.snapshot()
    first.close()
    assert {p.stem for p in (folder / "states").iterdir()} == {both.state_id, kept.state_id}
    assert len(list((folder / "blobs").iterdir())) == 2
    with second.open(spec, kept) as sandbox, pytest.raises(InfraFailure, match=lost.state_id[:12]):
        sandbox.restore(lost)
    second.close()
    assert {p.stem for p in (folder / "states").iterdir()} == {kept.state_id}
    third = DockerBackend(folder, spare=0)
    third.collect([])
    third.close()
    assert list((folder / "states").iterdir()) == list((folder / "blobs").iterdir()) == []


def test_probe_finds_what_is_there(backend: DockerBackend) -> None:
    found = {finding.name: finding for finding in DockerBackend.probe()}
    assert list(found) == ["docker daemon", "docker machine", "docker limits", "docker base image"]
    assert all(finding.ok for finding in found.values())
    assert backend.client.version()["Version"] in found["docker daemon"].detail
    assert found["docker base image"].detail.endswith("is there")


def test_probe_names_limits_that_the_daemon_cannot_set() -> None:
    info = {"ServerVersion": "1", "Driver": "d", "DockerRootDir": "/", "Architecture": "riscv64", "PidsLimit": True}
    _, machine, limits = daemon_findings(info)
    assert (machine.ok, limits.ok) == (False, False)
    assert limits.detail == "the daemon cannot set MemoryLimit, SwapLimit"
