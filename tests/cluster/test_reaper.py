"""What a dead owner left is ended and removed; what lives is left alone."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from refork.cluster import reaper
from refork.cluster.log_cache import converted
from refork.cluster.reaper import collect, end_holders, holders, make_ray_folder, sweep_ray_folders
from refork.envs.owner import owner
from refork.scripts.cli import main

CONVERSIONS = "unused conversions of logs"

_HOLDER = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
log = open(sys.argv[1], "w")
print(1, flush=True)
time.sleep(60)
"""


def _holder(folder: Path) -> subprocess.Popen[bytes]:
    """A process that keeps a log open in `folder` and shrugs off SIGTERM."""
    child = subprocess.Popen([sys.executable, "-c", _HOLDER, str(folder / "log")], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def _dead_label() -> str:
    child = subprocess.Popen(["sleep", "60"])
    label = owner(child.pid)
    child.kill()
    child.wait()
    return label


@pytest.fixture(autouse=True)
def _own_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "_RAY_PREFIX", f"refork-test-{os.getpid()}-")


def test_processes_are_found_by_the_files_they_hold(tmp_path: Path) -> None:
    child = _holder(tmp_path)
    try:
        assert holders(tmp_path) == [child.pid]
        assert holders(tmp_path / "other") == []
        (tmp_path / "log").unlink()
        assert holders(tmp_path) == [child.pid]
    finally:
        assert end_holders(tmp_path) == 1
    assert child.wait() == -9
    assert holders(tmp_path) == []


def test_conversions_of_logs_stay_as_long_as_somebody_uses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    assert main(["data", "cohort", str(tmp_path / "cohort.csv"), "--patients", "20"]) == 0
    kept = converted(tmp_path / "cohort.csv", None)
    assert collect()[CONVERSIONS] == 0
    (use,) = kept.glob("use-*")
    use.rename(kept / f"use-{_dead_label()}")
    assert converted(tmp_path / "cohort.csv", None) == kept
    assert collect()[CONVERSIONS] == 0
    (kept / f"use-{owner()}").unlink()
    assert collect()[CONVERSIONS] == 1
    assert not kept.exists()
    half = kept.with_name(".half")
    half.mkdir()
    assert collect()[CONVERSIONS] == 0
    os.utime(half, (0, 0))
    assert collect()[CONVERSIONS] == 1


def test_a_living_owner_keeps_its_folder() -> None:
    folder = make_ray_folder()
    try:
        assert sweep_ray_folders() == 0
        assert folder.is_dir()
    finally:
        (folder / "owner").unlink()
        folder.rmdir()


def test_a_dead_owners_folder_goes_with_all_that_runs_in_it() -> None:
    folder = make_ray_folder()
    (folder / "owner").write_text(_dead_label())
    child = _holder(folder)
    assert sweep_ray_folders() == 1
    assert child.wait() == -9
    assert not folder.exists()


def test_a_folder_not_yet_signed_is_left_for_a_minute() -> None:
    folder = make_ray_folder()
    (folder / "owner").unlink()
    assert sweep_ray_folders() == 0
    os.utime(folder, (time.time() - 61,) * 2)
    assert sweep_ray_folders() == 1
    assert not folder.exists()


def test_the_watchdog_ends_a_ray_when_its_owner_is_killed(tmp_path: Path) -> None:
    driver = subprocess.Popen(["sleep", "60"])
    command = [sys.executable, "-m", "refork.cluster.reaper", str(driver.pid), str(tmp_path)]
    watchdog = subprocess.Popen(command, env={**os.environ, "REFORK_HOME": str(tmp_path.parent / "home")})
    child = _holder(tmp_path)
    time.sleep(0.3)
    assert child.poll() is None
    driver.kill()
    driver.wait()
    assert child.wait(timeout=20) == -9
    assert watchdog.wait(timeout=20) == 0
    assert not tmp_path.exists()
