"""Where things are kept."""

from pathlib import Path

import pytest
from refork.envs.forkable import BadInput
from refork.envs.home import check_writable, home


def test_home_takes_the_first_variable_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setenv("REFORK_HOME", "~/r")
    assert home() == Path("/h/r")
    monkeypatch.setenv("REFORK_HOME", "")
    assert home() == Path("/x/refork")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert home() == Path("/h/.cache/refork")


def test_a_place_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_writable(tmp_path / "new" / "folder", "")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadInput, match=f"^{folder}: cannot be written: Not a directory; do this$"):
            check_writable(folder, "do this")
