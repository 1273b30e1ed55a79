"""Peak memory of turning a table into a log, and of drawing batches from it, without loading either whole.

    python scripts/bench/log_memory.py [--transitions 10000000] [--format csv]

Writes a made-up table (8 features, 25 actions), converts it, draws batches. Last line: JSON with the largest resident
memory of each part in MiB (each runs in a process of its own, interpreter and packages included; drawing: without the
pages of the log itself, which the system drops when it needs room), the size of the log in MiB, and how long the
conversion took.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from refork.replay.formats.cohort_writer import write_table
from refork.replay.formats.kinds import to_native
from refork.replay.transitions import load

FEATURES, LENGTH, BLOCK = 8, 20, 5000
SCHEMA = """\
[columns]
episode = "traj"
patient = "traj"
step = "step"
observations = ["o:*"]
actions = ["a:dose"]
reward = "r:reward"
[action]
kind = "discrete"
counts = [25]
[episode]
end = "terminated"
[reward]
text = "made up"
"""


def blocks(transitions: int) -> Iterator[dict[str, np.ndarray]]:
    """Columns of some thousand episodes at a time."""
    rng = np.random.default_rng(0)
    for first in range(0, transitions // LENGTH, BLOCK):
        episodes = np.arange(first, min(first + BLOCK, transitions // LENGTH))
        count = len(episodes) * LENGTH
        yield {
            "traj": np.repeat(episodes, LENGTH),
            "step": np.tile(np.arange(LENGTH), len(episodes)),
            **{f"o:f{k}": rng.random(count, np.float32).round(3) for k in range(FEATURES)},
            "a:dose": rng.integers(25, size=count),
            "r:reward": rng.integers(2, size=count),
        }


def convert(path: Path, folder: Path) -> None:
    """The table into a log folder."""
    to_native(path, None, folder)


def draw(folder: Path) -> None:
    """1,000 batches of 256 from all over the log."""
    log, rng = load(folder), np.random.default_rng(0)
    for _ in range(1000):
        rows = log.rows(rng.integers(len(log), size=256))
        assert log.observations[rows].shape == log.observations[rows + 1].shape == (256, FEATURES)


def measured(work: Callable[..., None], *arguments: Any) -> tuple[float, float]:
    """Largest resident memory in MiB, and seconds, of a process that does it."""
    context = multiprocessing.get_context("spawn")
    out = context.SimpleQueue()
    process = context.Process(target=_measured, args=(out, work, arguments))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{work.__name__} failed with exit code {process.exitcode}")
    found: tuple[float, float] = out.get()
    return found


def _own_mib() -> float:
    """Resident memory now that is no page of a file, MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def _measured(out: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    start = time.perf_counter()
    work(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out.put((peak if work is convert else _own_mib(), time.perf_counter() - start))


def main() -> None:
    """Prints a line a part, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=10_000_000)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        path, folder = Path(kept) / f"table.{options.format}", Path(kept) / "log"
        write_table(blocks(options.transitions), path)
        (Path(kept) / "table.schema.toml").write_text(SCHEMA)
        print(f"table: {path.stat().st_size / 2**20:.0f} MiB")
        convert_mib, seconds = measured(convert, path, folder)
        draw_mib, _ = measured(draw, folder)
        found = {
            "transitions": options.transitions,
            "format": options.format,
            "convert_peak_mib": round(convert_mib),
            "draw_own_mib": round(draw_mib),
            "log_mib": round(sum(file.stat().st_size for file in folder.iterdir()) / 2**20),
            "convert_seconds": round(seconds, 1),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
