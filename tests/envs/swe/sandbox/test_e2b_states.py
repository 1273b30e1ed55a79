"""The suites of files and states against the e2b backend, which talks to the stand-in for the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from refork.envs.swe.sandbox.base import Backend, SandboxSpec
from refork.envs.swe.sandbox.overlay import OverlayBackend

from . import test_files, test_state
from .conftest import make_backend

pytest.importorskip("e2b")
from .e2b_service import lacking, open_backend

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())
LEFT_OUT = {"test_a_long_chain_of_snapshots": "a snapshot of the stand-in is a whole copy: no chain gets long"}
for module in (test_files, test_state):
    globals().update({n: t for n, t in vars(module).items() if n.startswith("test_") and n not in LEFT_OUT})


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    yield from open_backend(tmp_path_factory.mktemp("e2b"))


def test_the_overlay_backend_gives_the_same_state_ids(
    backend: Backend, spec: SandboxSpec, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = make_backend("overlay", tmp_path_factory.mktemp("overlay"))
    assert isinstance(other, OverlayBackend)
    script = "echo 1 > new; rm README; chmod 700 pkg; ln -s new l; mkfifo f; mkdir -p d/e; mv run.sh d; date > /tmp/x"
    try:
        with backend.open(spec) as one, other.open(spec) as two:
            for sandbox in (one, two):
                sandbox.run(["sh", "-c", script.replace("date", "echo t")])
                sandbox.put({"/testbed/p/q": b"\x00\xff"})
            assert one.changes == two.changes
            assert one.state_id == two.state_id
    finally:
        other.close()
