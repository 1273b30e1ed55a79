"""Going back by replay: the suite of states, and divergences, over the backends that work here."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from refork.envs.forkable import StateMismatch, StateRef
from refork.envs.swe.sandbox.base import Backend, Sandbox, SandboxSpec
from refork.envs.swe.sandbox.replay import ReplayBackend, ReplaySandbox

from . import test_state
from .conftest import make_backend

globals().update({name: test for name, test in vars(test_state).items() if name.startswith("test_")})


@pytest.fixture(scope="module", params=["overlay", pytest.param("docker", marks=pytest.mark.docker)])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    made = ReplayBackend(make_backend(request.param, tmp_path_factory.mktemp(request.param)))
    yield made
    made.close()


def sh(sandbox: Sandbox, command: str) -> str:
    return sandbox.run(["sh", "-c", command]).output


def test_runs_and_puts_are_done_again_in_order(backend: Backend, spec: SandboxSpec) -> None:
    with backend.open(spec) as sandbox:
        sandbox.put({"/testbed/new/a": b"\x00\xff", "/testbed/README": None})
        sh(sandbox, "cat new/a new/a > b; echo noted > /tmp/note")
        ref = sandbox.snapshot()
        sent = StateRef(ref.state_id, json.loads(json.dumps(ref.payload)))
        sh(sandbox, "rm -r new b")
        sandbox.restore(sent)
        assert sandbox.state_id == ref.state_id
        assert sandbox.get("/testbed/b") == b"\x00\xff\x00\xff"
        assert sandbox.get("/tmp/note") == b"noted\n"
        with backend.open(spec, sent) as other:
            assert other.state_id == ref.state_id


def test_durations_may_differ(backend: Backend, spec: SandboxSpec) -> None:
    with backend.open(spec) as sandbox:
        assert "2 passed" in sh(sandbox, "echo 2 passed in 0.$(date +%N)s")
        sandbox.restore(sandbox.snapshot())


@pytest.mark.parametrize("command", ["date +%N", "date +%N > stamp", "exit $(($(date +%N) / 4000000 % 250))"])
def test_the_first_divergence_is_named(backend: Backend, spec: SandboxSpec, command: str) -> None:
    with backend.open(spec) as sandbox:
        sh(sandbox, "echo steady > a")
        sh(sandbox, command)
        sh(sandbox, "date +%N > later")
        ref = sandbox.snapshot()
        message = (
            r"replayed action 1 of 3 \(run \['sh', '-c', .*\) differs: expected observation [0-9a-f]{64}, got [0-9a-f]"
        )
        with pytest.raises(StateMismatch, match=message):
            sandbox.restore(ref)


def test_a_fork_is_the_same_actions_in_a_sandbox_of_its_own(backend: Backend, spec: SandboxSpec) -> None:
    with backend.open(spec) as sandbox:
        sh(sandbox, "echo 1 > a")
        with sandbox.fork() as fork:
            assert isinstance(fork, ReplaySandbox)
            sh(fork, "echo 2 > a")
            assert sh(sandbox, "cat a") == "1\n"
        assert sh(sandbox, "cat a") == "1\n"
