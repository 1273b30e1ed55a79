"""The suites of commands, files and states against the e2b backend, which talks to the stand-in for the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from refork.envs.swe.sandbox.base import Backend

from . import test_commands, test_files, test_state

pytest.importorskip("e2b")
from .e2b_service import lacking, serving

pytestmark = pytest.mark.skipif(bool(lacking()), reason=lacking())
LEFT_OUT = {
    "test_limits": "the memory limit is by process here, so no kernel says that a command was killed for it",
}
for module in (test_commands, test_files, test_state):
    globals().update({n: t for n, t in vars(module).items() if n.startswith("test_") and n not in LEFT_OUT})


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    from refork.envs.swe.sandbox.e2b import E2BBackend

    folder = tmp_path_factory.mktemp("e2b")
    with pytest.MonkeyPatch.context() as patch, serving(folder / "service", patch.setenv) as service:
        patch.setenv("REFORK_HOME", str(folder / "home"))
        made = E2BBackend()
        yield made
        made.close()
        assert not service.machines
