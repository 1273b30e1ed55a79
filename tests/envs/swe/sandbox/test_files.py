"""Conformance of put and get: as the sandbox sees it, and never a path of the host."""

from __future__ import annotations

import pytest
from refork.envs.swe.sandbox.base import Sandbox

from tests.envs.swe.sandbox.test_state import file, sh


def test_put_makes_folders_keeps_modes_and_belongs_to_the_sandbox(sandbox: Sandbox) -> None:
    sandbox.put({"/testbed/x/y/z.txt": b"1\0\xfe", "/testbed/run.sh": b"#!/bin/sh\necho changed\n", "/tmp/t": b"t"})
    assert sh(
        sandbox, "./run.sh; stat -c '%a %u %g' x x/y x/y/z.txt run.sh /tmp/t; echo ok >> x/y/z.txt; touch x/new"
    ) == ("changed\n755 1000 1000\n755 1000 1000\n644 1000 1000\n755 1000 1000\n644 1000 1000\n")
    assert sandbox.get("/testbed/x/y/z.txt") == b"1\0\xfeok\n"


def test_put_of_nothing_deletes_and_what_is_not_there_is_no_error(sandbox: Sandbox) -> None:
    sandbox.put({"/testbed/README": None, "/testbed/pkg": None, "/testbed/nothing/there": None, "/testbed/link": None})
    assert sh(sandbox, "ls") == "empty\nrun.sh\ntest_it.py\n"
    sandbox.put({"/testbed/pkg/a.py": b"again"})
    assert sh(sandbox, "find pkg | sort; cat pkg/a.py") == "pkg\npkg/a.py\nagain"
    sandbox.snapshot()
    sandbox.put({"/testbed/pkg": None})
    assert sh(sandbox, "ls -d pkg 2>/dev/null || echo gone") == "gone\n"
    sandbox.put({"/testbed/pkg/inner/b.py": b"B = 2\n"})
    assert sh(sandbox, "find pkg | sort") == "pkg\npkg/inner\npkg/inner/b.py\n"


def test_put_equals_the_same_done_inside(sandbox: Sandbox) -> None:
    with sandbox.fork() as other:
        sandbox.put({"/testbed/pkg/a.py": b"A = 3\n", "/testbed/n/m": b"1", "/testbed/README": None})
        sh(other, "echo 'A = 3' > pkg/a.py; mkdir n; printf 1 > n/m; rm README")
        assert sandbox.changes == other.changes
        assert sandbox.state_id == other.state_id


def test_get_reads_base_frozen_and_fresh_files_and_cuts(sandbox: Sandbox) -> None:
    sh(sandbox, "printf frozen > a")
    sandbox.snapshot()
    sh(sandbox, "printf fresh > b")
    assert sandbox.get("/testbed/README") == b"read me\n"
    assert sandbox.get("/testbed/a") == b"frozen"
    assert sandbox.get("/testbed/b") == b"fresh"
    assert sandbox.get("/testbed/README", 4) == b"read"


def test_get_says_what_is_wrong(sandbox: Sandbox) -> None:
    sh(sandbox, "rm README; mkfifo pipe; ln -s loop loop")
    for path in ("/testbed/README", "/testbed/nothing", "/testbed/nothing/below", "/testbed/link"):
        with pytest.raises(FileNotFoundError):
            sandbox.get(path)
    with pytest.raises(IsADirectoryError):
        sandbox.get("/testbed/pkg")
    for path in ("/testbed/pipe", "/testbed/loop", "relative"):
        with pytest.raises((OSError, ValueError)):
            sandbox.get(path)


def test_links_are_followed_inside_and_never_to_the_host(sandbox: Sandbox) -> None:
    sh(
        sandbox,
        "ln -s pkg dir; ln -s /testbed/pkg/inner abs; ln -s /etc/passwd out; ln -s ../../../../../../etc up; "
        "ln -s /tmp t; rm README; ln -s pkg/a.py README; ln -s made new",
    )
    assert sandbox.get("/testbed/dir/a.py") == b"A = 1\n"
    assert sandbox.get("/testbed/abs/b.py") == b"B = 2\n"
    assert sandbox.get("/testbed/README") == b"A = 1\n"
    for path in ("/testbed/out", "/testbed/up/passwd", "/etc/passwd", "/testbed/../etc/passwd", "/proc/self/environ"):
        with pytest.raises(OSError):  # noqa: PT011
            sandbox.get(path)
        with pytest.raises(OSError):  # noqa: PT011
            sandbox.put({path: b"mine"})
    sandbox.put(
        {"/testbed/dir/a.py": b"A = 5\n", "/testbed/abs/c.py": b"C", "/testbed/t/x": b"X", "/testbed/new": b"N"}
    )
    assert sh(sandbox, "cat pkg/a.py pkg/inner/c.py /tmp/x made; readlink dir") == "A = 5\nCXNpkg\n"


def test_a_link_planted_over_a_folder_of_the_base_leads_nowhere_on_the_host(sandbox: Sandbox) -> None:
    sh(sandbox, "rm -r pkg; ln -s /etc pkg")
    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011
            sandbox.get("/testbed/pkg/passwd")
        with pytest.raises(OSError):  # noqa: PT011
            sandbox.put({"/testbed/pkg/refork-was-here": b""})
        sandbox.snapshot()
    sandbox.put({"/testbed/pkg": None, "/testbed/pkg/a.py": b"mine"})
    assert sh(sandbox, "find pkg | sort") == "pkg\npkg/a.py\n"
    assert sandbox.changes["/testbed/pkg/a.py"] == file(b"mine")
