"""Unpacking source distributions."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from refork.envs.forkable import InfraFailure
from refork.envs.swe.package import Layout, unpack_package
from refork.envs.swe.workspace import derive, dropped, files_below, unpack


def archive(path: Path, *members: tuple[str, bytes | None]) -> Path:
    """A tar.gz; None makes a link out of the archive."""
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if data is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            else:
                info.size, info.mode = len(data), 0o777
            tar.addfile(info, io.BytesIO(data or b""))
    return path


def test_the_top_folder_links_and_what_is_to_be_dropped_stay_out(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "a.tar.gz",
        ("p-1/p/a.py", b"A\n"),
        ("p-1/docs/x.rst", b"x"),
        ("p-1/p.egg-info/SOURCES.txt", b"x"),
        ("p-1/.git/HEAD", b"x"),
        ("p-1/p/__pycache__/a.pyc", b"x"),
        ("p-1/p/link", None),
    )
    unpack(path, tmp_path / "w", ("docs", "*.egg-info"))
    assert files_below(tmp_path / "w") == ["p/a.py"]
    assert (tmp_path / "w/p/a.py").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["p-1/../../evil.py", "p-1//etc/evil.py"])
def test_a_path_outside_the_archive_is_refused(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar.gz", (name, b"x"))
    with pytest.raises(InfraFailure, match=r"a.tar.gz is not a source distribution"):
        unpack(path, tmp_path / "deep" / "w")


def test_a_damaged_archive_and_one_without_tests_are_named(tmp_path: Path) -> None:
    good = archive(tmp_path / "a.tar.gz", ("p-1/a.py", b"x" * 10_000))
    (tmp_path / "b.tar.gz").write_bytes(good.read_bytes()[:60])
    with pytest.raises(InfraFailure, match=r"b.tar.gz is not a source distribution"):
        unpack(tmp_path / "b.tar.gz", tmp_path / "w")
    layout = Layout(sources=("*.py",), tests=("tests",), python_path=(), drop=())
    with pytest.raises(InfraFailure, match=r"a.tar.gz holds no tests at tests"):
        unpack_package("p", "1", good, tmp_path / "w2", layout)


def test_globs_match_names_and_paths_and_what_is_below_them() -> None:
    assert dropped("a/docs/x.py", ("docs",))
    assert dropped("docs/x.py", ("docs",))
    assert dropped("a/b/c.py", ("a/b",))
    assert not dropped("a/docstring.py", ("docs",))


def test_a_derived_workspace_shares_what_is_equal_and_leaves_the_base_alone(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for name in ("a", "b", "c"):
        (base / name).write_text(name)
    derive(base, tmp_path / "new", {"b": b"other", "c": None, "d/e": b"added"})
    assert files_below(tmp_path / "new") == ["a", "b", "d/e"]
    assert (tmp_path / "new" / "a").samefile(base / "a")
    assert (base / "b").read_text() == "b"
    assert (tmp_path / "new" / "b").read_text() == "other"
