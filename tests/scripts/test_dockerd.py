"""The private Docker daemon of the test run: it comes, answers, and goes with everything it had, also after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "dockerd.sh"
USE = f"""
set -euo pipefail
source {SCRIPT}
trap stop_dockerd EXIT
private_dockerd
echo "host ${{DOCKER_HOST:-none}}"
"""
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dockerd") is None, reason="needs root and an installed dockerd"
)


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder of a short name, since sockets are made below it."""
    with tempfile.TemporaryDirectory(prefix="rf", dir="/tmp") as folder:
        yield Path(folder)


def start(folder: Path, after: str, name: str = "test.sh") -> subprocess.Popen[str]:
    """A script that sources dockerd.sh, with its temporary files in `folder`."""
    script = folder / name
    script.write_text(USE + after)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DOCKER", "REFORK"))}
    environment["TMPDIR"] = str(folder)
    return subprocess.Popen(["bash", str(script)], stdout=subprocess.PIPE, text=True, env=environment)


def daemons(folder: Path) -> list[int]:
    """Processes with `folder` on their command line, other than the script."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{folder}/refork-dockerd".encode() in line:
            found.append(int(entry.name))
    return found


def skip_if_it_cannot_run(line: str) -> None:
    if line.startswith("docker tests skipped: "):
        pytest.skip(line)


@needs_root
@pytest.mark.docker
def test_the_daemon_goes_with_the_script_and_its_exit_code_stays(short: Path) -> None:
    with start(short, f"docker version >/dev/null; ls {short}/refork-dockerd.*/docker.sock; exit 3\n") as script:
        lines = script.communicate(timeout=60)[0].splitlines()
    skip_if_it_cannot_run(lines[0])
    assert script.returncode == 3
    assert lines[0] == f"host unix://{lines[1]}"
    assert [path.name for path in short.iterdir()] == ["test.sh"]
    assert daemons(short) == []


@needs_root
@pytest.mark.docker
def test_the_next_run_removes_what_a_killed_one_left(short: Path) -> None:
    with start(short, "echo up; sleep 1000\n") as script:
        assert script.stdout is not None
        line = script.stdout.readline()
        skip_if_it_cannot_run(line)
        assert line.startswith("host unix://")
        children = Path(f"/proc/{script.pid}/task/{script.pid}/children").read_text().split()
        script.send_signal(signal.SIGKILL)
        for child in children:
            if b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
    assert len(daemons(short)) >= 1
    left = next(short.glob("refork-dockerd.*"))
    with start(short, "exit 0\n") as script:
        script.communicate(timeout=60)
    assert script.returncode == 0
    assert not left.exists()
    end = time.monotonic() + 20
    while daemons(short):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_without_a_base_image_the_docker_tests_are_skipped(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho warning; echo 'image x is not there' >&2; exit 1\n")
    python.chmod(0o755)
    script = f'source {SCRIPT}; docker_base_image {python}; echo "$DOCKER_HOST"; docker_base_image /no/such/python'
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "docker tests skipped: image x is not there",
        "unix:///no-daemon-for-tests.sock",
    ]


@pytest.mark.parametrize(
    ("stubs", "why"),
    [
        ({"id": "echo 1000"}, "a private dockerd needs root"),
        ({"id": "echo 0"}, "dockerd is not installed, and there is no apt to install it with"),
        ({"id": "echo 0", "apt-get": "exit 100"}, "apt could not install docker.io"),
        (
            {"id": "echo 0", "dockerd": "echo 'failed to start: no cgroups' >&2; exit 1", "debootstrap": "exit 0"},
            "no cgroups",
        ),
    ],
)
def test_where_it_cannot_be_done_one_line_says_why(tmp_path: Path, stubs: dict[str, str], why: str) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in (
        "cat",
        "sed",
        "seq",
        "sleep",
        "mktemp",
        "mkdir",
        "rm",
        "grep",
        "tail",
        "awk",
        "sort",
        "xargs",
        "setsid",
        "sh",
    ):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    for name, body in stubs.items():
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    script = (
        f'export PATH={tools}; source {SCRIPT}; private_dockerd; echo "$REFORK_DOCKER_SKIPPED / ${{DOCKER_HOST:-}}"'
    )
    done = subprocess.run(
        [str(shutil.which("bash")), "-euc", script], capture_output=True, text=True, env={"TMPDIR": str(tmp_path)}
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0].startswith("docker tests skipped: ")
    assert why in lines[0]
    assert lines[1] == f"{lines[0].removeprefix('docker tests skipped: ')} / unix:///no-daemon-for-tests.sock"
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
