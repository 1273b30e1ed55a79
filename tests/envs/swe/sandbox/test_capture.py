"""Output is bounded, counted exactly and cut between characters."""

from __future__ import annotations

import itertools
import random

import pytest
from refork.envs.swe.sandbox.capture import HeadTail


def captured(data: bytes, limit: int, chunk: int) -> tuple[str, int]:
    kept = HeadTail(limit)
    for start in range(0, len(data), chunk):
        kept.feed(data[start : start + chunk])
    return kept.text()


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1000])
def test_what_fits_is_whole(chunk: int) -> None:
    text = "ä€😀\0\n" * 20
    assert captured(text.encode(), 1000, chunk) == (text, 0)
    assert captured(b"\xfe\xe2\x82", 10, chunk) == ("\ufffd\ufffd", 0)


@pytest.mark.parametrize(("limit", "chunk"), list(itertools.product((2, 9, 10, 11, 12, 13), (1, 3, 50))))
def test_a_cut_leaves_out_whole_characters_and_counts_bytes(limit: int, chunk: int) -> None:
    text = "€" * 100
    kept, omitted = captured(text.encode(), limit, chunk)
    head, line, tail = kept.split("\n")
    assert line == f"[{omitted} bytes left out]"
    assert set(head + tail) <= {"€"}
    assert len((head + tail).encode()) + omitted == 300


def test_chunks_make_no_difference() -> None:
    rng = random.Random(1)
    data = rng.randbytes(300_000)
    assert len({captured(data, 1000, chunk) for chunk in (1, 17, 4096, 300_000)}) == 1
