"""A small file system, for what happens when a disk is full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """One mounted at `place`, which is made if need be; `size` as tmpfs has it, e.g. "40m". Skips where not root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
