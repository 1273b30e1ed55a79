"""Conformance: equal contents have equal ids, forks are independent, snapshots come back exactly or say what not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from refork.envs.forkable import StateMismatch, StateRef
from refork.envs.swe.sandbox.base import Backend, Entry, Sandbox, SandboxSpec, digest_state


def sh(sandbox: Sandbox, script: str) -> str:
    """Run a shell script that must succeed; its output."""
    result = sandbox.run(["sh", "-ec", script])
    assert result.exit_code == 0, result
    return result.output


def file(content: bytes, mode: int = 0o644) -> Entry:
    return Entry("file", mode, hashlib.sha256(content).hexdigest())


GONE = Entry("deleted", 0, "")


def test_the_base_is_the_empty_change(sandbox: Sandbox, spec: SandboxSpec) -> None:
    assert sandbox.changes == {}
    assert sandbox.state_id == digest_state(spec.base_id, {})
    assert sh(sandbox, "ls -A; cat link; ./run.sh; stat -c %a . /tmp pkg run.sh README") == (
        "README\nempty\nlink\npkg\nrun.sh\ntest_it.py\nread me\nran\n755\n1777\n755\n755\n644\n"
    )
    assert sandbox.changes == {}


def test_every_kind_of_change_is_listed_exactly(sandbox: Sandbox) -> None:
    sh(
        sandbox,
        "echo new > n; echo A=9 > pkg/a.py; rm README; rm -r pkg/inner; mkdir -m 700 d; echo x > d/x; ln -s n l; "
        "mkfifo -m 600 f; chmod 600 run.sh; echo t > /tmp/t; chmod 750 empty",
    )
    assert dict(sandbox.changes) == {
        "/testbed/n": file(b"new\n"),
        "/testbed/pkg/a.py": file(b"A=9\n"),
        "/testbed/README": GONE,
        "/testbed/pkg/inner": GONE,
        "/testbed/d": Entry("dir", 0o700, ""),
        "/testbed/d/x": file(b"x\n"),
        "/testbed/l": Entry("link", 0o777, hashlib.sha256(b"n").hexdigest()),
        "/testbed/f": Entry("fifo", 0o600, ""),
        "/testbed/run.sh": file(b"#!/bin/sh\necho ran\n", 0o600),
        "/tmp/t": file(b"t\n"),
        "/testbed/empty": Entry("dir", 0o750, ""),
    }


ROUTES: Sequence[tuple[str, Sequence[str]]] = [
    ("touch and rewrite", ["touch pkg/a.py", "echo 'A = 1' > pkg/a.py", "chmod 600 run.sh; chmod 755 run.sh"]),
    ("made and removed", ["echo x > x; mkdir -p y/z; echo 1 > y/z/f", "rm -r x y"]),
    (
        "removed and made again",
        ["rm -r pkg", "mkdir -p pkg/inner; echo 'A = 1' > pkg/a.py", "echo 'B = 2' > pkg/inner/b.py"],
    ),
    ("file, folder, file", ["rm README; mkdir README; touch README/x", "rm -r README; echo 'read me' > README"]),
    ("folder, file, folder", ["rm -r empty; echo x > empty", "rm empty; mkdir empty"]),
    ("link, file, link", ["rm link; echo x > link", "rm link; ln -s README link"]),
    ("renamed and back", ["mv pkg p2", "mv p2 pkg"]),
    (
        "byte-code",
        ["mkdir -p pkg/__pycache__ .pytest_cache/v; echo x > pkg/__pycache__/a.pyc; echo y > .pytest_cache/v/z"],
    ),
]


@pytest.mark.parametrize("snapshots", [False, True], ids=["plain", "snapshots between"])
@pytest.mark.parametrize("steps", [steps for _, steps in ROUTES], ids=[name for name, _ in ROUTES])
def test_routes_back_to_the_base_meet_in_one_state(sandbox: Sandbox, steps: Sequence[str], snapshots: bool) -> None:
    start = sandbox.state_id
    for step in steps:
        sh(sandbox, step)
        if snapshots:
            sandbox.snapshot()
    assert dict(sandbox.changes) == {}
    assert sandbox.state_id == start


def test_two_routes_to_one_content_have_one_id_and_one_restored_content(backend: Backend, spec: SandboxSpec) -> None:
    with backend.open(spec) as one, backend.open(spec) as other:
        sh(one, "rm -r pkg; mkdir pkg; echo q > pkg/q; echo 1 > one")
        sh(other, "echo 0 > one; rm pkg/a.py")
        other.snapshot()
        sh(other, "rm -r pkg/inner; echo q > pkg/q")
        other.snapshot()
        sh(other, "echo 1 > one; touch x; rm x")
        assert one.changes == other.changes
        assert one.state_id == other.state_id
        one.restore(other.snapshot())
        assert sh(one, "find . | sort") == sh(other, "find . | sort")


def test_a_folder_of_the_base_hidden_by_a_new_one_shows_nothing_of_it(sandbox: Sandbox) -> None:
    sh(sandbox, "rm -r pkg; mkdir pkg; echo new > pkg/new")
    ref = sandbox.snapshot()
    sh(sandbox, "echo more > pkg/more")
    assert sh(sandbox, "find pkg | sort") == "pkg\npkg/more\npkg/new\n"
    assert sandbox.changes["/testbed/pkg/a.py"] == GONE
    assert "/testbed/pkg/inner/b.py" not in sandbox.changes
    sandbox.restore(ref)
    assert sh(sandbox, "find pkg | sort") == "pkg\npkg/new\n"


def test_a_fork_and_its_origin_do_not_see_each_other(sandbox: Sandbox) -> None:
    sh(sandbox, "echo both > both; echo t > /tmp/t")
    with sandbox.fork() as fork:
        assert fork.state_id == sandbox.state_id
        sh(fork, "echo fork > fork; rm both")
        sh(sandbox, "echo origin > origin")
        assert sh(sandbox, "cat both origin; ls fork 2>&1 || true").splitlines()[:2] == ["both", "origin"]
        assert set(fork.changes) == {"/testbed/fork", "/tmp/t"}
        assert set(sandbox.changes) == {"/testbed/both", "/testbed/origin", "/tmp/t"}
        with fork.fork() as second:
            assert second.state_id == fork.state_id
            assert second.state_id != sandbox.state_id


def test_a_snapshot_is_restored_in_its_own_and_in_another_sandbox(backend: Backend, spec: SandboxSpec) -> None:
    with backend.open(spec) as one:
        sh(one, "echo a > a; rm README; echo t > /tmp/t; mkdir -m 711 d; ln -s a l")
        ref = one.snapshot()
        changes = dict(one.changes)
        sh(one, "echo b > b; rm a /tmp/t; chmod 755 d")
        one.restore(ref)
        assert dict(one.changes) == changes
        assert one.state_id == ref.state_id
        with backend.open(spec, StateRef(ref.state_id, dict(ref.payload))) as other:
            assert dict(other.changes) == changes
            assert (
                sh(other, "ls; cat l /tmp/t; stat -c %a d")
                == "a\nd\nempty\nl\nlink\npkg\nrun.sh\ntest_it.py\na\nt\n711\n"
            )


def test_a_reference_that_lies_about_its_id_is_refused(sandbox: Sandbox) -> None:
    sh(sandbox, "echo a > a")
    ref = sandbox.snapshot()
    before = sandbox.state_id
    with pytest.raises(StateMismatch, match="0000"):
        sandbox.restore(StateRef("0" * 64, ref.payload))
    assert sandbox.state_id == before
    assert sh(sandbox, "cat a") == "a\n"


def test_a_long_chain_of_snapshots(sandbox: Sandbox, backend: Backend) -> None:
    refs = []
    length = 200 if backend.name == "overlay" else 40
    for step in range(length):
        files: dict[str, bytes | None] = {f"/testbed/f{step % 60}": str(step).encode()}
        if step % 7 == 6:
            files[f"/testbed/f{(step - 3) % 60}"] = None
        sandbox.put(files)
        refs.append((sandbox.snapshot(), dict(sandbox.changes)))
    assert len({ref.state_id for ref, _ in refs}) == length
    for ref, changes in (refs[0], refs[length // 2], refs[-1]):
        sandbox.restore(ref)
        assert dict(sandbox.changes) == changes
        listed = sh(sandbox, "ls -d f* 2>/dev/null || true").split()
        assert sorted(listed) == sorted(path.rpartition("/")[2] for path in changes)


def test_hard_links_are_cut_so_that_no_freeze_changes_what_a_write_does(sandbox: Sandbox) -> None:
    sh(sandbox, "echo 1 > a; ln a b")
    with sandbox.fork() as fork:
        sh(sandbox, "echo 2 >> a")
        sh(fork, "echo 2 >> a")
        assert sh(sandbox, "cat b") == sh(fork, "cat b") == "1\n"
        assert sandbox.state_id == fork.state_id


def test_names_that_are_not_utf8_and_names_with_newlines(sandbox: Sandbox) -> None:
    sandbox.run(["python", "-c", r"open(b'\xfe\xff', 'w').write('x'); open('new\nline', 'w').write('y')"])
    assert dict(sandbox.changes) == {"/testbed/\udcfe\udcff": file(b"x"), "/testbed/new\nline": file(b"y")}
    ref = sandbox.snapshot()
    sh(sandbox, "rm -r *")
    sandbox.restore(ref)
    assert sandbox.state_id == ref.state_id
    assert sandbox.get("/testbed/\udcfe\udcff") == b"x"


def test_a_sandbox_that_is_closed_says_so_and_closes_twice(backend: Backend, spec: SandboxSpec) -> None:
    sandbox = backend.open(spec)
    sandbox.close()
    sandbox.close()
    with pytest.raises(ValueError, match="closed"):
        sandbox.run(["true"])
