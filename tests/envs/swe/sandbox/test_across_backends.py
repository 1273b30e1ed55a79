"""The same random commands give the same exit codes and state ids in both backends, also after going back."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from refork.envs.forkable import StateRef
from refork.envs.swe.sandbox.base import Backend, Sandbox, SandboxSpec

from tests.envs.swe.sandbox.conftest import make_backend
from tests.envs.swe.sandbox.random_commands import random_command

COMMANDS = int(os.environ.get("REFORK_FUZZ", "150"))
"""REFORK_FUZZ=1000 is the long form."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Backend, Backend]]:
    with ExitStack() as stack:
        made = []
        for name in ("docker", "overlay"):
            made.append(make_backend(name, tmp_path_factory.mktemp(name)))
            stack.callback(made[-1].close)
        yield made[0], made[1]


@pytest.mark.docker
@pytest.mark.parametrize("seed", [1, 2])
def test_random_commands_meet_in_the_same_states(both: tuple[Backend, Backend], spec: SandboxSpec, seed: int) -> None:
    rng = random.Random(seed)
    pair = [backend.open(spec) for backend in both]
    refs: list[list[StateRef]] = []
    for step in range(COMMANDS // 2):
        pair = _step(rng, pair, refs)
        ids = [sandbox.state_id for sandbox in pair]
        assert ids[0] == ids[1], (step, _difference(pair))
    assert len(refs) > COMMANDS // 40
    for sandbox in pair:
        sandbox.close()


def _step(rng: random.Random, pair: list[Sandbox], refs: list[list[StateRef]]) -> list[Sandbox]:
    chance = rng.random()
    if chance < 0.08:
        refs.append([sandbox.snapshot() for sandbox in pair])
        assert refs[-1][0].state_id == refs[-1][1].state_id
    elif chance < 0.12 and refs:
        for sandbox, ref in zip(pair, rng.choice(refs), strict=True):
            sandbox.restore(ref)
    elif chance < 0.14:
        forks = [sandbox.fork() for sandbox in pair]
        for sandbox in pair:
            sandbox.close()
        return forks
    else:
        command = random_command(rng)
        one, other = (sandbox.run(["sh", "-c", command]) for sandbox in pair)
        assert one.exit_code == other.exit_code, (command, one.output, other.output)
    return pair


def _difference(pair: list[Sandbox]) -> dict[str, object]:
    one, other = (dict(sandbox.changes) for sandbox in pair)
    return {p: (one.get(p), other.get(p)) for p in one.keys() | other.keys() if one.get(p) != other.get(p)}
