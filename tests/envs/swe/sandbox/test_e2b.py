"""The e2b backend and a service that fails: refusals, quotas, dead machines and owners; and nothing left behind."""

from __future__ import annotations

import builtins
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from refork.cluster import reaper
from refork.envs.forkable import InfraFailure, StateMismatch, StateRef
from refork.envs.owner import owner
from refork.envs.swe.sandbox.base import SandboxSpec, UnsupportedHost
from refork.envs.swe.sandbox.docker_client import LABEL, MACHINE_LABEL, machine
from refork.envs.swe.sandbox.manifest import digest_tree

pytest.importorskip("e2b")
from refork.envs.swe.sandbox import e2b_client
from refork.envs.swe.sandbox.e2b import E2BBackend
from refork.envs.swe.sandbox.e2b_probe import probe

from .e2b_service import KEY, Fault, Service, lacking, serving

BASES = "unused copies of workspaces in the e2b service"

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch, serving(patch.setenv) as made:
        patch.setenv("REFORK_HOME", str(tmp_path_factory.mktemp("home")))
        yield made


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> SandboxSpec:
    base = tmp_path_factory.mktemp("base")
    (base / "README").write_text("read me\n")
    return SandboxSpec(base, digest_tree(base), preload=())


@pytest.fixture
def backend(service: Service) -> Iterator[E2BBackend]:
    made = E2BBackend(run="test")
    yield made
    service.faults.clear()
    made.close()
    assert not service.machines


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Ours, which are noted instead of waited for; the SDK's own stay."""
    noted: list[float] = []
    monkeypatch.setattr(e2b_client, "time", type("Time", (), {"sleep": noted.append}))
    return noted


def frozen(service: Service) -> list[str]:
    return [name for name, _ in service.snapshots.values() if not name.startswith("refork-base-")]


def test_a_base_is_sent_once_and_a_sandbox_has_labels_and_no_network(
    service: Service, backend: E2BBackend, spec: SandboxSpec
) -> None:
    backend.open(spec).close()
    sent = [body for (_, path), body in zip(service.requests, service.bodies, strict=True) if path == "/files"]
    with closing(backend.open(spec)) as sandbox:
        assert [path for _, path in service.requests].count("/files") == len(sent)
        made = service.machines[sandbox.machine_name]
        assert made.metadata == {LABEL: owner(), "refork.run": "test", MACHINE_LABEL: machine()}
        assert not made.internet
        assert 3500 < made.ends - time.monotonic() <= 3600


def test_the_key_never_gets_into_a_sandbox_or_a_log(
    service: Service, backend: E2BBackend, spec: SandboxSpec, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with closing(backend.open(spec)) as sandbox:
        assert not any(KEY.encode() in body for body in service.bodies)
        assert "E2B" not in sandbox.run(["env"]).output
        seen = sandbox.run(["sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; ls /var/refork"]).output
        assert KEY not in seen
        assert "cannot open directory '/var/refork'" in seen
    assert KEY not in caplog.text


def test_a_restored_snapshot_is_held_against_its_id(service: Service, backend: E2BBackend, spec: SandboxSpec) -> None:
    with closing(backend.open(spec)) as sandbox:
        sandbox.put({"/testbed/x": b"1"})
        ref = StateRef(**json.loads(json.dumps(vars(sandbox.snapshot()))))
        _, folder = service.snapshots[ref.payload["snapshot"]]
        assert sandbox.snapshot() == ref
        assert len(frozen(service)) == 1
        (folder / "var/refork/work/x").write_text("2")
        with pytest.raises(StateMismatch, match="/testbed/x: "):
            sandbox.restore(ref)
        assert sandbox.get("/testbed/x") == b"1"
        assert len(service.machines) == 1


@pytest.mark.parametrize(("status", "times", "ours"), [(429, 5, 1), (503, 5, 1), (500, 3, 3)])
def test_what_passes_is_asked_for_again(
    service: Service, backend: E2BBackend, spec: SandboxSpec, status: int, times: int, ours: int, pauses: list[float]
) -> None:
    """The SDK repeats 429 and 503 itself, three times within each of our attempts."""
    service.faults.append(Fault("/v2/sandboxes", status, times=times))
    with closing(backend.open(spec)) as sandbox:
        assert sandbox.run(["cat", "README"]).output == "read me\n"
    assert len(pauses) == ours
    assert not service.machines


def test_a_quota_that_does_not_pass_is_an_infra_failure(
    service: Service, backend: E2BBackend, spec: SandboxSpec, pauses: list[float]
) -> None:
    service.faults.append(Fault("/v2/sandboxes", 429, times=1000))
    before = service.requests.count(("POST", "/v2/sandboxes"))
    with pytest.raises(InfraFailure, match=r"no sandbox could be made from .*attempt 4.*Rate limit exceeded"):
        backend.open(spec)
    assert service.requests.count(("POST", "/v2/sandboxes")) - before == 4 * 4
    assert len(pauses) == 3
    assert 0.25 <= pauses[0] <= 0.75
    assert max(pauses) <= e2b_client.LONGEST_PAUSE_S


def test_a_command_that_may_have_run_is_not_run_again(
    service: Service, backend: E2BBackend, spec: SandboxSpec, pauses: list[float]
) -> None:
    with closing(backend.open(spec)) as sandbox:
        service.faults.append(Fault("/process.Process/Start", 429))
        assert sandbox.run(["sh", "-c", "echo x >> log; cat log"]).output == "x\n"
        assert len(pauses) == 1
        service.faults.append(Fault("/process.Process/Start", 500))
        with pytest.raises(InfraFailure, match=r"does not answer \(attempt 1\)"):
            sandbox.run(["sh", "-c", "echo x >> log"])
        with pytest.raises(InfraFailure, match="does not answer"):
            sandbox.run(["true"])


def test_a_dead_machine_is_an_infra_failure_and_restore_recovers(
    service: Service, backend: E2BBackend, spec: SandboxSpec
) -> None:
    with closing(backend.open(spec)) as sandbox:
        sandbox.put({"/testbed/x": b"1"})
        ref = sandbox.snapshot()
        name = sandbox.machine_name
        service.kill(name)
        with pytest.raises(InfraFailure, match=f"{name}.*was not found"):
            sandbox.run(["true"])
        sandbox.restore(ref)
        assert sandbox.machine_name != name
        assert sandbox.get("/testbed/x") == b"1"


def test_a_service_that_does_not_answer_in_time_is_an_infra_failure(
    service: Service, backend: E2BBackend, spec: SandboxSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("refork.envs.swe.sandbox.e2b.GRACE_S", 0.2)
    with closing(backend.open(spec)) as sandbox:
        service.faults.append(Fault("/process.Process/Start", seconds=3.0))
        started = time.monotonic()
        with pytest.raises(InfraFailure, match="does not answer"):
            sandbox.run(["true"], limits=type(spec.limits)(wall_s=0.3))
        assert time.monotonic() - started < 2.5


def test_a_snapshot_that_is_gone_is_an_infra_failure(backend: E2BBackend, spec: SandboxSpec) -> None:
    ref = StateRef("0" * 64, {"snapshot": "team/gone:default", "name": "gone"})
    with pytest.raises(InfraFailure, match=r"no sandbox could be made from team/gone:default.*404"):
        backend.open(spec, ref)
    with pytest.raises(InfraFailure, match="has no snapshot"):
        backend.open(spec, StateRef("0" * 64))


def test_a_base_removed_by_others_is_made_anew(service: Service, backend: E2BBackend, spec: SandboxSpec) -> None:
    backend.open(spec).close()
    for snapshot_id in list(service.snapshots):
        service.delete(snapshot_id)
    with closing(backend.open(spec)) as sandbox:
        assert sandbox.changes == {}


def test_snapshots_end_with_their_backend_unless_kept(service: Service, spec: SandboxSpec) -> None:
    backend = E2BBackend()
    with closing(backend.open(spec)) as sandbox:
        refs = []
        for number in range(3):
            sandbox.put({"/testbed/x": str(number).encode()})
            refs.append(sandbox.snapshot())
    backend.retain(refs[1])
    backend.close()
    assert frozen(service) == [refs[1].payload["name"]]
    other = E2BBackend()
    with closing(other.open(spec, refs[1])) as again:
        assert again.get("/testbed/x") == b"1"
    other.collect([refs[1]])
    assert frozen(service) == [refs[1].payload["name"]]  # this process lives
    other.close()
    service.delete(refs[1].payload["snapshot"])


OWNER = """
import sys
from pathlib import Path
from refork.envs.swe.sandbox.base import SandboxSpec
from refork.envs.swe.sandbox.e2b import E2BBackend
backend = E2BBackend()
sandbox = backend.open(SandboxSpec(Path(sys.argv[1]), sys.argv[2], preload=()))
refs = []
for name in "ab":
    sandbox.put({"/testbed/x": name.encode()})
    refs.append(sandbox.snapshot())
backend.retain(refs[0])
print(sandbox.machine_name, flush=True)
sandbox.run(["sleep", "600"])
"""


def test_what_a_killed_owner_left_is_swept_and_what_lives_or_is_another_s_is_not(
    service: Service, backend: E2BBackend, spec: SandboxSpec
) -> None:
    with closing(backend.open(spec)) as mine:
        command = [sys.executable, "-c", OWNER, str(spec.base), spec.base_id]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            name = child.stdout.readline().strip()
            assert reaper.sweep()["sandboxes and snapshots of the e2b service"] == 0
            assert set(service.machines) == {mine.machine_name, name}
            child.kill()
        service.machines[mine.machine_name].metadata[MACHINE_LABEL] = "another"
        assert len(frozen(service)) == 2
        assert reaper.sweep()["sandboxes and snapshots of the e2b service"] == 2
        assert set(service.machines) == {mine.machine_name}
        assert len(frozen(service)) == 1  # retained
        backend.collect([])
        assert frozen(service) == []
        service.machines[mine.machine_name].metadata[MACHINE_LABEL] = machine()
        assert reaper.collect()[BASES] == 0
    assert (reaper.collect()[BASES] or 0) > 0
    assert not service.snapshots


def test_no_key_a_wrong_key_and_no_package_are_said_before_anything_starts(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(finding.ok for finding in probe())
    monkeypatch.setenv("E2B_API_KEY", "e2b_wrong")
    with pytest.raises(UnsupportedHost, match=r"refuses the key in E2B_API_KEY: 401") as told:
        E2BBackend()
    assert "wrong" not in str(told.value)
    assert [finding.ok for finding in probe()] == [True, True, False]
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(UnsupportedHost, match="set E2B_API_KEY"):
        E2BBackend()
    assert reaper.sweep()["sandboxes and snapshots of the e2b service"] == 0
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "e2b":
            raise ImportError("No module named 'e2b'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedHost, match=r"needs the package `e2b`.*pip install 'refork\[e2b\]'"):
        E2BBackend()
    assert [(f.ok, f.remedy) for f in probe()] == [(False, "pip install 'refork[e2b]'")]


def test_a_base_keeps_hard_links_modes_and_odd_names(backend: E2BBackend, tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "d" / "__pycache__").mkdir(parents=True)
    (base / "d" / "__pycache__" / "x.pyc").write_text("x")
    (base / "one").write_text("1")
    os.link(base / "one", base / "d" / "two")
    (base / "ä\n'").write_text("")
    (base / "run").write_text("#!/bin/sh\necho ran\n")
    (base / "run").chmod(0o700)
    os.symlink("nowhere", base / "link")
    with closing(backend.open(SandboxSpec(base, digest_tree(base), preload=()))) as sandbox:
        assert sandbox.changes == {}
        found = sandbox.run(["sh", "-c", "./run; stat -c '%a %h %U' one d/two run; ls d; echo 2 >> one; cat d/two"])
        assert found.output == "ran\n644 1 user\n644 1 user\n755 1 user\ntwo\n1"


def test_a_request_too_long_for_an_argument_goes_as_a_file_that_is_removed(
    service: Service, backend: E2BBackend, spec: SandboxSpec
) -> None:
    content = os.urandom(1 << 20)
    with closing(backend.open(spec)) as sandbox:
        sandbox.put({"/testbed/big": content})
        assert sandbox.get("/testbed/big", 2 << 20) == content
        held = service.machines[sandbox.machine_name].root / "var" / "refork"
        assert not list(held.glob("request-*"))
