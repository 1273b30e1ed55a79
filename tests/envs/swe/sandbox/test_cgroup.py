"""The memory group speaks both versions of the kernel's interface; a plain folder stands for version 2 here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from refork.envs.owner import owner
from refork.envs.swe.sandbox import cgroup
from refork.envs.swe.sandbox.cgroup import MemoryGroup

FILES = {
    2: {"memory.max": "max", "memory.stat": "anon 1000\nfile 5\n", "memory.events": "low 0\noom 2\noom_kill 1\n"},
    1: {
        "memory.limit_in_bytes": "9",
        "memory.stat": "cache 5\nrss 1000\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    },
}
LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
EVENTS = {1: "memory.oom_control", 2: "memory.events"}


@pytest.mark.parametrize("version", [1, 2])
def test_limit_and_kills(tmp_path: Path, version: int) -> None:
    for name, text in FILES[version].items():
        (tmp_path / name).write_text(text)
    group = MemoryGroup(tmp_path)
    group.measure()
    group.limit(1 << 20)
    assert int((tmp_path / LIMIT[version]).read_text()) == (1 << 20) + 1000 + (4 << 20)
    assert group.killed()
    assert not group.killed()
    (tmp_path / EVENTS[version]).write_text("oom_kill 3\n")
    assert group.killed()


def test_groups_of_the_dead_are_swept_and_those_of_the_living_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "_parents", lambda: iter([tmp_path]))
    living = tmp_path / f"refork-{owner()}.1"
    dead = tmp_path / f"refork-{owner().rpartition('-')[0]}-1.1"
    beside = tmp_path / "neighbour" / "refork-x-1-1.2"
    for path in (living, dead, beside):
        path.mkdir(parents=True)
    cgroup.sweep_groups()
    assert living.exists()
    assert not dead.exists()
    assert not beside.exists()


def test_no_right_to_make_a_group_means_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "_parents", lambda: iter([Path("/proc/self")]))
    assert cgroup.make_group(os.getpid()) is None
