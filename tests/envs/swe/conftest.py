"""An overlay backend for tests of the environments."""

from collections.abc import Iterator

import pytest
from refork.envs.swe.sandbox.base import Backend, UnsupportedHost
from refork.envs.swe.sandbox.overlay import OverlayBackend


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    try:
        made = OverlayBackend(tmp_path_factory.mktemp("overlay") / "layers")
    except UnsupportedHost as error:
        pytest.skip(f"overlay: {error}")
    yield made
    made.close()
