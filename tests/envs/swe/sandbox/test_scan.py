"""Merging a layer into the state below it, case by case; scanning what hostile code may leave."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from refork.envs.swe.sandbox.base import Entry
from refork.envs.swe.sandbox.scan import Base, Row, merge, scan_layer
from refork.envs.swe.sandbox.trees import disk_use, remove_tree

FOLDER, GONE = Entry("dir", 0o755, ""), Entry("deleted", 0, "")
BASE = Base(
    {
        "/testbed": FOLDER,
        "/testbed/d": FOLDER,
        "/testbed/d/x": Entry("file", 0o644, "x"),
        "/testbed/d/y": Entry("file", 0o644, "y"),
    }
)


def file(digest: str) -> Entry:
    return Entry("file", 0o644, digest)


def layer(opaque: str = "", **entries: Entry) -> Mapping[str, Row]:
    """A layer with the workspace's folder and entries named with '_' for '/'."""
    paths = {"/testbed": FOLDER, **{f"/testbed/{name.replace('_', '/')}": entry for name, entry in entries.items()}}
    return {path: Row(entry, path == f"/testbed/{opaque}", 0, (0, 0, 0, 0, 0), True) for path, entry in paths.items()}


def test_an_entry_equal_to_the_base_is_no_change() -> None:
    assert merge(BASE, {}, layer(d=FOLDER, d_x=file("x"))) == {}
    assert merge(BASE, {"/testbed/d/x": file("other")}, layer(d=FOLDER, d_x=file("x"))) == {}


def test_a_layer_changes_only_what_it_holds() -> None:
    below = {"/testbed/d/x": file("1"), "/testbed/n": file("n")}
    assert merge(BASE, below, layer(d=FOLDER, d_y=file("2"))) == {**below, "/testbed/d/y": file("2")}


def test_deleting_a_folder_forgets_what_was_below_it() -> None:
    below = {"/testbed/d/x": file("1"), "/testbed/d/new": file("n")}
    assert merge(BASE, below, layer(d=GONE)) == {"/testbed/d": GONE}
    assert merge(BASE, {"/testbed/n": FOLDER, "/testbed/n/f": file("f")}, layer(n=GONE)) == {}


def test_a_folder_made_again_hides_the_base() -> None:
    after = {"/testbed/d/x": GONE, "/testbed/d/y": GONE, "/testbed/d/new": file("n")}
    assert merge(BASE, {}, layer("d", d=FOLDER, d_new=file("n"))) == after
    assert merge(BASE, {"/testbed/d": GONE}, layer(d=FOLDER, d_new=file("n"))) == after
    assert merge(BASE, {"/testbed/d": file("f")}, layer("d", d=FOLDER, d_x=file("x"))) == {"/testbed/d/y": GONE}


def test_a_file_over_a_folder_and_back() -> None:
    over = merge(BASE, {"/testbed/d/new": file("n")}, layer(d=file("f")))
    assert over == {"/testbed/d": file("f")}
    back = merge(BASE, over, layer("d", d=FOLDER, d_x=file("x"), d_y=file("y")))
    assert back == {}


def test_a_scan_reads_again_what_changed_within_one_tick(tmp_path: Path) -> None:
    (tmp_path / "up" / "work").mkdir(parents=True)
    path = tmp_path / "up" / "work" / "f"
    seen, known = set(), {}
    for number in range(200):
        path.write_text(str(number % 10))
        known = scan_layer(tmp_path / "up", known, tmp_path / "cut")
        seen.add((number % 10, known["/testbed/f"].entry.digest))
    assert len(seen) == 10


def test_cutting_hard_links_never_writes_through_a_planted_link(tmp_path: Path) -> None:
    work = tmp_path / "up" / "work"
    work.mkdir(parents=True)
    (tmp_path / "host").write_text("host")
    (work / "a").write_text("a")
    os.link(work / "a", work / "b")
    for name in ("a.refork-cut", "cut", "a.tmp"):
        (work / name).symlink_to(tmp_path / "host")
    rows = scan_layer(tmp_path / "up", {}, tmp_path / "cut")
    assert (work / "a").stat().st_nlink == (work / "b").stat().st_nlink == 1
    assert rows["/testbed/a"].entry == rows["/testbed/b"].entry
    assert (tmp_path / "host").read_text() == "host"
    assert not (tmp_path / "cut").exists()


def test_a_tree_of_any_depth_is_removed_without_following_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("f")
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("deep", dir_fd=here)
        os.symlink(outside, "1", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert disk_use(top, 1 << 40) > 1 << 40
    remove_tree(top)
    assert not top.exists()
    assert (outside / "f").read_text() == "f"


def test_a_sparse_file_counts_with_its_length(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as sparse:
        sparse.truncate(1 << 30)
    assert disk_use(tmp_path, 1 << 40) == 1 << 30
