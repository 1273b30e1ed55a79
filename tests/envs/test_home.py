"""Where things are kept."""

from pathlib import Path

import pytest
from refork.envs.home import home


def test_home_takes_the_first_variable_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("REFORK_HOME", "~/r")
    assert home() == Path("/h/r")
    monkeypatch.setenv("REFORK_HOME", "")
    assert home() == Path("/x/refork")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert home() == Path("/h/.cache/refork")
