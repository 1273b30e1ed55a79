"""What W&B wrote in a run's folder, read back: its `.wandb` files, a record log in LevelDB's format.

A run that was gone on with offline has one such file for each time it was opened: its segments.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER, FILE_HEADER = 32768, 7, 7
FULL, LAST = 1, 4
"""Kinds of a part that end a record."""


def segments(run: Path, offline: bool = False) -> list[Path]:
    """The `.wandb` files of the run in this folder, oldest first; `offline`: only those recorded without a server."""
    pattern = "offline-run-*" if offline else "*run-*"
    found = (p for p in run.glob(f"wandb/{pattern}/run-*.wandb") if p.parent.name != "latest-run")
    return sorted(found, key=lambda p: p.parent.name.removeprefix("offline-"))


def run_id(segment: Path) -> str:
    """The id of W&B's run that a segment is part of."""
    return segment.stem.removeprefix("run-")


def known_id(run: Path) -> str | None:
    """The id under which the run in this folder was recorded last; None when it never was."""
    return run_id(found[-1]) if (found := segments(run)) else None


def records(segment: Path) -> Iterator[Any]:
    """The whole records (`wandb_internal_pb2.Record`); a torn last one, of a killed machine, is left out."""
    from wandb.proto import wandb_internal_pb2

    kind: Any = wandb_internal_pb2.Record  # type: ignore[attr-defined]
    for data, _ in _parts(segment.read_bytes()):
        record = kind()
        record.ParseFromString(data)
        yield record


def cut_torn_record(segment: Path) -> bool:
    """Cut a torn last record off, with which W&B would upload neither this segment nor the next; True when there was
    one."""
    content = segment.read_bytes()
    whole = max((end for _, end in _parts(content)), default=min(len(content), FILE_HEADER))
    if whole == len(content):
        return False
    with segment.open("rb+") as file:
        file.truncate(whole)
    return True


def history(segment: Path) -> list[dict[str, Any]]:
    """The rows of a segment, `_step` among their keys."""
    rows = [record.history.item for record in records(segment) if record.WhichOneof("record_type") == "history"]
    return [{i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in row} for row in rows]


def last_step(run: Path) -> int:
    """The step of the last row that any segment holds; -1 without one."""
    return max((int(row["_step"]) for segment in segments(run) for row in history(segment)), default=-1)


def _parts(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Each whole record's bytes and where it ends. A record is cut at the edges of blocks, each part with a header of
    7 bytes: checksum, length, kind."""
    place, record = FILE_HEADER, b""
    while place + HEADER <= len(content):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        place += HEADER + length
        if place > len(content) or not kind:
            return
        record += content[place - length : place]
        if kind in (FULL, LAST):
            yield record, place
            record = b""
