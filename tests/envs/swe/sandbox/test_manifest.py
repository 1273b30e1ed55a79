"""A base's digest covers what a sandbox sees of it and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from refork.envs.swe.sandbox.base import Entry
from refork.envs.swe.sandbox.manifest import base_manifest, copy_base, difference, digest_tree

FILE, OTHER, FOLDER, GONE = (
    Entry("file", 0o644, "1"),
    Entry("file", 0o644, "2"),
    Entry("dir", 0o755, ""),
    Entry("deleted", 0, ""),
)


def _copy(base: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy"
    shutil.copytree(base, copy, symlinks=True)
    return copy


def _volatile(copy: Path) -> None:
    (copy / "pkg" / "__pycache__").mkdir()
    (copy / "pkg" / "__pycache__" / "a.pyc").write_bytes(b"x")
    (copy / ".pytest_cache").mkdir()


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: os.utime(copy / "README", (1, 1)),
        lambda copy: (copy / "README").chmod(0o600),
        lambda copy: (copy / "pkg").chmod(0o700),
        lambda copy: (copy / "run.sh").chmod(0o711),
        _volatile,
    ],
    ids=["times", "umask of a file", "umask of a folder", "umask of a program", "volatile folders"],
)
def test_what_a_digest_does_not_see(base: Path, tmp_path: Path, change: Callable[[Path], object]) -> None:
    copy = _copy(base, tmp_path)
    change(copy)
    assert digest_tree(copy) == digest_tree(base)


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: (copy / "README").write_text("read mE\n"),
        lambda copy: (copy / "README").chmod(0o755),
        lambda copy: (copy / "README").rename(copy / "README2"),
        lambda copy: (copy / "empty").rmdir(),
        lambda copy: ((copy / "link").unlink(), (copy / "link").symlink_to("pkg")),
        lambda copy: ((copy / "link").unlink(), (copy / "link").write_text("README")),
        lambda copy: (copy / "__pycache__").write_text("a file of that name is no cache"),
    ],
    ids=["content", "program", "name", "empty folder", "link target", "link or file", "cache that is a file"],
)
def test_what_a_digest_sees(base: Path, tmp_path: Path, change: Callable[[Path], object]) -> None:
    copy = _copy(base, tmp_path)
    change(copy)
    assert digest_tree(copy) != digest_tree(base)


def test_a_copy_is_what_the_manifest_says(base: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        copy_base(base, tmp_path / "copy")
    finally:
        os.umask(before)
    assert base_manifest(tmp_path / "copy") == base_manifest(base)
    assert (tmp_path / "copy" / "README").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "copy" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "copy" / "pkg").stat().st_mode & 0o777 == 0o755


def test_a_base_with_a_pipe_is_refused_by_name(base: Path, tmp_path: Path) -> None:
    copy = _copy(base, tmp_path)
    os.mkfifo(copy / "pipe")
    with pytest.raises(ValueError, match="pipe"):
        digest_tree(copy)


def test_difference_lists_a_vanished_folder_once() -> None:
    base = {"/testbed": FOLDER, "/testbed/d": FOLDER, "/testbed/d/x": FILE, "/testbed/f": FILE}
    assert difference(base, {"/testbed": FOLDER, "/testbed/f": FILE}) == {"/testbed/d": GONE}
    assert difference(base, {"/testbed": FOLDER, "/testbed/d": OTHER, "/testbed/f": FILE}) == {"/testbed/d": OTHER}
    assert difference(base, {"/testbed": FOLDER, "/testbed/d": FOLDER, "/testbed/f": OTHER}) == {
        "/testbed/d/x": GONE,
        "/testbed/f": OTHER,
    }
