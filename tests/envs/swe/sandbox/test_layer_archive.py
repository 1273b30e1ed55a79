"""Archives of layers: any tree comes out as it went in, one layer always as the same bytes; nothing else is taken."""

from __future__ import annotations

import io
import os
import socket
import stat
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.layer_archive import BLOCK, CHUNK_BYTES, END, _block, _record, layer_id, pack
from refork.envs.swe.sandbox.layer_unpack import LayerRefused, unpack
from refork.envs.swe.sandbox.scan import OPAQUE, scan_layer


def packed(layer: Path) -> bytes:
    return b"".join(pack(layer, scan_layer(layer, {}, None)))


def unpacked(archive: bytes, folder: Path, max_bytes: int = 1 << 30) -> Path:
    folder.mkdir()
    unpack([archive], folder, lambda path: None, max_bytes)
    return folder


def content(layer: Path) -> dict[str, object]:
    return {path: (row.entry, row.opaque) for path, row in scan_layer(layer, {}, None).items()}


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """One of everything that a layer can hold."""
    made = tmp_path / "layer"
    (made / "work" / "d" / "closed").mkdir(parents=True)
    (made / "tmp").mkdir()
    (made / "tmp").chmod(0o1777)
    (made / "work" / "a.py").write_text("A = 2\n")
    (made / "work" / "empty").write_bytes(b"")
    (made / "work" / "set").write_bytes(b"x" * 513)
    (made / "work" / "set").chmod(0o4755)
    (made / "work" / "l").symlink_to("../" * 60 + "etc/passwd")
    (made / "work" / ("long" * 60)).write_text("name\n")
    (made / "work" / os.fsdecode(b"not \xff utf-8 \n=")).write_text("name\n")
    os.mkfifo(made / "work" / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(made / "tmp")
        bound.bind("s")
        os.chdir(here)
    os.mknod(made / "work" / "gone", stat.S_IFCHR, os.makedev(0, 0))
    os.setxattr(made / "work" / "d", OPAQUE, b"y")
    (made / "work" / "d" / "closed" / "f").write_text("f\n")
    (made / "work" / "d" / "closed").chmod(0)
    return made


def test_all_that_a_layer_can_hold_comes_out_as_it_went_in(layer: Path, tmp_path: Path) -> None:
    copy = unpacked(packed(layer), tmp_path / "copy")
    assert content(copy) == content(layer)
    kinds = {row.entry.kind for row in scan_layer(copy, {}, None).values()}
    assert kinds == {"file", "dir", "link", "fifo", "socket", "deleted"}
    assert packed(copy) == packed(layer)


def test_times_owners_and_order_are_no_part_of_it(tmp_path: Path) -> None:
    for folder, names in (("one", "abc"), ("two", "cba")):
        for name in names:
            (tmp_path / folder / "work").mkdir(parents=True, exist_ok=True)
            (tmp_path / folder / "work" / name).write_text(name)
            os.utime(tmp_path / folder / "work" / name, (len(folder + name), ord(name)))
    if os.geteuid() == 0:
        os.chown(tmp_path / "two" / "work" / "a", 7, 7)
    assert packed(tmp_path / "one") == packed(tmp_path / "two")


def test_it_is_a_tar_to_others(layer: Path, tmp_path: Path) -> None:
    file = tmp_path / "layer.tar"
    file.write_bytes(packed(layer))
    listed = subprocess.run(["tar", "--list", "--file", str(file)], capture_output=True, check=False).stdout
    assert b"work/a.py\n" in listed
    with tarfile.open(file) as again:
        assert again.extractfile("work/a.py").read() == b"A = 2\n"
        assert again.getmember("work/gone").pax_headers["REFORK.kind"] == "deleted"


def test_big_files_go_in_chunks(tmp_path: Path) -> None:
    (tmp_path / "big" / "work").mkdir(parents=True)
    (tmp_path / "big" / "work" / "f").write_bytes(os.urandom(2 * CHUNK_BYTES + 1))
    table = scan_layer(tmp_path / "big", {}, None)
    chunks = list(pack(tmp_path / "big", table))
    assert [len(chunk) for chunk in chunks[:2]] == [CHUNK_BYTES] * 2
    (tmp_path / "copy").mkdir()
    unpack(chunks, tmp_path / "copy", lambda path: None)
    assert content(tmp_path / "copy") == content(tmp_path / "big")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=40).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
FILES = st.tuples(st.binary(max_size=1500), st.sampled_from([0o644, 0o755, 0, 0o4711, 0o600]))
TREES = st.recursive(
    FILES | NAMES | st.none(), lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=15
).filter(lambda tree: isinstance(tree, dict))


def build(tree: object, where: Path) -> None:
    """A file for bytes and mode, a link for a text, a whiteout for None, an opaque folder where its size is odd."""
    if isinstance(tree, dict):
        where.mkdir(parents=True)
        for name, inner in tree.items():
            build(inner, where / name)
        if len(tree) % 2:
            os.setxattr(where, OPAQUE, b"y")
    elif isinstance(tree, tuple):
        where.write_bytes(tree[0])
        where.chmod(tree[1])
    elif isinstance(tree, str):
        where.symlink_to(tree)
    else:
        os.mknod(where, stat.S_IFCHR, os.makedev(0, 0))


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_random_trees_come_out_equal(tree: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        layer = Path(folder, "layer")
        build(tree, layer / "work")
        copy = unpacked(packed(layer), Path(folder, "copy"))
        assert layer_id(scan_layer(copy, {}, None)) == layer_id(scan_layer(layer, {}, None))


def test_a_cut_at_any_block_is_refused(layer: Path, tmp_path: Path) -> None:
    archive = packed(layer)
    for number, end in enumerate([*range(0, len(archive), BLOCK), len(archive) - 1]):
        with pytest.raises(LayerRefused, match="ends early"):
            unpacked(archive[:end], tmp_path / str(number))


def entry(path: bytes, kind: bytes = tarfile.REGTYPE, data: bytes = b"", mode: int = 0o644, **records: bytes) -> bytes:
    """An entry as hostile code would write it."""
    found = {b"path": path} | {key.replace("_", ".").encode(): value for key, value in records.items()}
    text = b"".join(_record(key, value) for key, value in found.items())
    head = _block(tarfile.XHDTYPE, "pax", 0o644, len(text)) + text + bytes(-len(text) % BLOCK)
    return head + _block(kind, "entry", mode, len(data)) + data + bytes(-len(data) % BLOCK)


WORK = entry(b"work", tarfile.DIRTYPE, mode=0o755)
LINK = entry(b"work/l", tarfile.SYMTYPE, linkpath=b"/tmp")


def plain_tar(**fields: object) -> bytes:
    """What tarfile itself would write."""
    info = tarfile.TarInfo("work/x")
    for name, value in fields.items():
        setattr(info, name, value)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(info)
    return out.getvalue()


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (entry(b"/etc/passwd"), "is in no folder of the layer"),
        (WORK + entry(b"work/../x"), "is in no folder of the layer"),
        (WORK + entry(b"work/.."), "is in no folder of the layer"),
        (WORK + entry(b"work/a\0b"), "is in no folder of the layer"),
        (entry(b"m.json", data=b"[]"), "is in no folder of the layer"),
        (entry(b"kept"), "is in no folder of the layer"),
        (entry(b"work"), "is in no folder of the layer"),
        (entry(b"work/no/folder"), "is in no folder of the layer"),
        (WORK + LINK + entry(b"work/l/through"), "is in no folder of the layer"),
        (WORK + LINK + entry(b"work/l", data=b"over"), "comes twice"),
        (WORK + entry(b"work/d", tarfile.CHRTYPE), "which no layer holds"),
        (WORK + entry(b"work/d", tarfile.BLKTYPE), "which no layer holds"),
        (WORK + entry(b"work/h", tarfile.LNKTYPE, linkpath=b"/etc/passwd"), "which no layer holds"),
        (WORK + entry(b"work/h", REFORK_kind=b"device"), "which no layer holds"),
        (WORK + entry(b"work/h", REFORK_kind=b"deleted", data=b"x"), "has mode 644 and size 1"),
        (WORK + entry(b"work/h", linkpath=b"/tmp"), "is a file with the target"),
        (WORK + entry(b"work/h", GNU_sparse_map=b"0,1"), "a record is damaged"),
        (WORK + entry(b"work/big", data=bytes(5000)), "holds more than 9000 bytes, from 'work/big' on"),
        (WORK + entry(b"work/1") + entry(b"work/2") + entry(b"work/3"), "holds more than 9000 bytes"),
        (WORK + entry(b"work/" + b"n" * 300), "a name that cannot be"),
        (plain_tar(), "an entry without its records"),
        (plain_tar(name="x" * 5000), "^'x{80}' is in no folder of the layer"),
        (b"\x1f\x8b" + bytes(600), "a header is damaged"),
        (WORK + END + b"more", "goes on after its end"),
        (WORK + END[:BLOCK] + b"x" * BLOCK, "its end mark is damaged"),
    ],
)
def test_what_no_layer_holds_is_refused(archive: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(LayerRefused, match=said):
        unpacked(archive + END, tmp_path / "out", 9000)
    assert not any(path.name in ("passwd", "through") for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("where", [0, 148, BLOCK, BLOCK + 3, 2 * BLOCK + 124, 2 * BLOCK + 156])
def test_flipped_bits_of_a_header_never_pass_unseen(layer: Path, where: int, tmp_path: Path) -> None:
    archive = bytearray(packed(layer))
    archive[where] ^= 0x41
    try:
        copy = unpacked(bytes(archive), tmp_path / "out")
    except LayerRefused:
        return
    assert layer_id(scan_layer(copy, {}, None)) != layer_id(scan_layer(layer, {}, None))


def test_a_layer_that_shrinks_meanwhile_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "f").write_text("x")
    table = scan_layer(tmp_path, {}, None)
    (tmp_path / "work" / "f").unlink()
    with pytest.raises(InfraFailure, match=r"cannot be read: No such file .*work/f"):
        list(pack(tmp_path, table))
