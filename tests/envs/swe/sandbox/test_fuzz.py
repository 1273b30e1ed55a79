"""Random commands, snapshots, restores and forks: each state is that of a plain folder treated alike.

A thousand steps; `REFORK_FUZZ` sets another number.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from refork.envs.forkable import StateRef
from refork.envs.swe.sandbox.base import Backend, Sandbox, SandboxSpec, digest_state

from tests.envs.swe.sandbox.random_commands import PlainTree, random_command

COMMANDS = int(os.environ.get("REFORK_FUZZ", "1000"))


class Walk:
    """A sandbox and its model, driven by one random stream."""

    def __init__(self, backend: Backend, spec: SandboxSpec, tree: PlainTree, seed: int) -> None:
        self.backend = backend
        self.spec = spec
        self.tree = tree
        self.rng = random.Random(seed)
        self.sandbox: Sandbox = backend.open(spec)
        self.refs: list[StateRef] = []
        self.history: list[str] = []

    def step(self) -> None:
        chance = self.rng.random()
        if chance < 0.08:
            self.tree.save(str(len(self.refs)))
            self.refs.append(self.sandbox.snapshot())
        elif chance < 0.12 and self.refs:
            index = self.rng.randrange(len(self.refs))
            self.history.append(f"restore {index}")
            self.tree.load(str(index))
            self.sandbox.restore(self.refs[index])
        elif chance < 0.14:
            self._replace(self.sandbox.fork())
        elif chance < 0.16:
            self._replace(self.backend.open(self.spec, self.sandbox.snapshot()))
        else:
            command = random_command(self.rng)
            self.history.append(command)
            self.tree.run(command)
            self.sandbox.run(["sh", "-c", command])

    def _replace(self, other: Sandbox) -> None:
        self.sandbox.close()
        self.sandbox = other

    def check(self) -> None:
        assert dict(self.sandbox.changes) == self.tree.changes, self.history[-12:]
        assert self.sandbox.state_id == digest_state(self.spec.base_id, self.tree.changes)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: the model is copied and removed often."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as name:
        yield Path(name)


@pytest.mark.timeout(900)
def test_a_sandbox_does_what_a_plain_folder_does(backend: Backend, spec: SandboxSpec, memory: Path) -> None:
    steps = COMMANDS if backend.name == "overlay" else COMMANDS // 5
    walk = Walk(backend, spec, PlainTree(spec.base, memory / "plain"), seed=7)
    for _ in range(steps):
        walk.step()
        walk.check()
    walk.sandbox.close()
    assert len(walk.history) > steps // 2
