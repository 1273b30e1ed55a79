"""The suite of commands against the e2b backend, which talks to the stand-in for the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from refork.envs.swe.sandbox.base import Backend, Sandbox

from . import test_commands

pytest.importorskip("e2b")
from .e2b_service import lacking, open_backend

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())
LEFT_OUT = {
    "test_limits": "memory is bounded by process, so no kernel says that a command was killed for it; see below",
    "test_the_limit_on_processes_is_exact_and_holds_for_threads_too": "the user of a machine is one of this host here",
}
globals().update({n: t for n, t in vars(test_commands).items() if n.startswith("test_") and n not in LEFT_OUT})


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    yield from open_backend(tmp_path_factory.mktemp("e2b"))


def test_limits_by_process_and_by_user(sandbox: Sandbox) -> None:
    def run(code: str, **changed: int) -> tuple[int | None, str | None, str]:
        result = sandbox.run(["python", "-c", code], limits=test_commands.limits(sandbox, **changed))
        return result.exit_code, result.killed_by, result.output.splitlines()[-1]

    assert run("len(bytearray(400 << 20))", memory_mb=128) == (1, None, "MemoryError")
    assert run("print(len(bytearray(64 << 20)))", memory_mb=256) == (0, None, "67108864")
    assert run("print(1, flush=True)\nwhile True: pass", cpu_s=1) == (None, "cpu", "1")
    count, text = run(test_commands.FORKS, processes=20)[2].split(" ", 1)
    assert int(count) <= 19
    assert text == "Resource temporarily unavailable"
