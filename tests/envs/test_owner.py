"""A label names one process of one boot, not a number that comes round again."""

import os
import subprocess

import pytest
from refork.envs.owner import alive, owner


def test_this_process_lives() -> None:
    assert alive(owner())
    assert owner() == owner(os.getpid())


def test_a_dead_one_and_a_zombie_do_not() -> None:
    child = subprocess.Popen(["sleep", "60"])
    label = owner(child.pid)
    assert alive(label)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(label)
    child.wait()
    assert not alive(label)
    with pytest.raises(ProcessLookupError, match=f"no process {child.pid}"):
        owner(child.pid)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_another_boot_pid_or_start_is_another_process(place: int) -> None:
    parts = owner().split("-")
    parts[place] = "1" if parts[place] != "1" else "2"
    assert not alive("-".join(parts))


@pytest.mark.parametrize("label", ["", "x", "--", "a-b-c", "\n"])
def test_what_is_no_label_has_no_living_owner(label: str) -> None:
    assert not alive(label)
