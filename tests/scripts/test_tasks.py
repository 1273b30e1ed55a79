"""`refork tasks` as a user types it, from an empty folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.envs.swe.toy import toy_tasks
from tests.envs.swe.toy_index import NAME, toy_environment, toy_index, toy_recipe

REFORK = [sys.executable, "-m", "refork.scripts.cli", "tasks"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "REFORK_HOME": str(folder / "home"), "COLUMNS": "120"}
    return subprocess.run(
        [*REFORK, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("command", ["list", "check"])
def test_without_a_task_set_the_message_says_how_to_get_one(command: str, tmp_path: Path) -> None:
    done = run(tmp_path, command)
    where = tmp_path / "home" / "tasks"
    assert done.returncode == 2
    assert done.stderr == f"refork: no task set in {where}; build one with: refork tasks build\n"


def test_a_package_without_a_recipe_is_named(tmp_path: Path) -> None:
    done = run(tmp_path, "build", "--packages", "tolz")
    assert done.returncode == 2
    assert done.stderr.startswith("refork: no recipe for package 'tolz'; there are: boltons, cachetools, ")
    assert not (tmp_path / "home").exists()


def test_a_malformed_set_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"instance_id": 3}\n')
    done = run(tmp_path, "list", ".")
    assert done.returncode == 2
    assert done.stderr == f"refork: {tmp_path}/tasks.jsonl, row 1, column 'instance_id': str wanted, 3 found\n"


def test_a_set_is_listed_by_package_or_by_id(tmp_path: Path) -> None:
    toy_tasks(tmp_path, "direction", "guard")
    assert "toy" in run(tmp_path, "list", ".").stdout
    assert run(tmp_path, "list", ".", "--ids").stdout == "toy-direction-guard\n"


def test_an_interrupted_build_leaves_no_process_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy_recipe(tmp_path / "recipes", toy_index(tmp_path / "index", monkeypatch))
    toy_environment(tmp_path / "set")
    program = (
        "import sys, pathlib\n"
        "from refork.envs.swe.builder import build_taskset\n"
        "if __name__ == '__main__':\n"
        "    here = pathlib.Path(sys.argv[1])\n"
        "    print(build_taskset(here / 'set', recipes=here / 'recipes', jobs=1).tasks)\n"
    )
    (tmp_path / "build.py").write_text(program)
    command = [sys.executable, str(tmp_path / "build.py"), str(tmp_path)]
    environment = {**os.environ, "REFORK_HOME": str(tmp_path / "home")}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    hidden = tmp_path / "set" / "packages" / f".{NAME}"
    deadline = time.monotonic() + 60
    while not hidden.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)  # to the driver alone, as a supervisor would
    assert first.wait(30) != 0
    assert not (hidden / "tasks.jsonl").exists()  # cut short, not waited for
    deadline = time.monotonic() + 10
    while left := _processes_of(tmp_path / "home"):  # multiprocessing's tracker ends just after its driver
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert not (tmp_path / "set" / "tasks.jsonl").exists()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert again.stdout.splitlines()[-1] == "5"
    assert not hidden.exists()


def _processes_of(home: Path) -> list[str]:
    """Command lines of processes started with this REFORK_HOME."""
    wanted, found = f"REFORK_HOME={home}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_a_home_that_cannot_be_written_is_said_before_anything_is_built(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    done = run(tmp_path, "build", "--packages", "inflection")
    assert done.returncode == 2
    assert done.stderr.startswith(f"refork: {tmp_path / 'home'}: cannot be written: Not a directory; set REFORK_HOME")
    assert done.stderr.count("\n") == 1
