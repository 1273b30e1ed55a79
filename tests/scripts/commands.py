"""Runs `refork` as a person would: the installed command, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from refork.cluster.checkpoint_folder import committed
from refork.cluster.tracking import read_metrics

REFORK = str(Path(sys.executable).with_name("refork"))
SMALL = ("chain_small", "--trainer.updates", "6", "--checkpoint.every", "2")
"""A job of a second, with checkpoints on the way."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """As a new user's: no key, nothing kept from before. A native crash says where it was."""
    own = {"HOME": str(folder), "REFORK_HOME": str(folder / ".refork"), "COLUMNS": "120", "PYTHONFAULTHANDLER": "1"}
    return {k: v for k, v in os.environ.items() if not k.startswith(("WANDB", "RAY_", "REFORK"))} | own | more


def refork(folder: Path, *arguments: str, timeout_s: float = 120, **more: str) -> subprocess.CompletedProcess[str]:
    """Run to the end; output as text."""
    return subprocess.run(
        [REFORK, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def start(folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    """Start and leave running; output is kept for `communicate`."""
    return subprocess.Popen(
        [REFORK, *arguments],
        cwd=folder,
        env=environment(folder, **more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run_folder(folder: Path) -> Path:
    """The only run in `folder`."""
    (run,) = (folder / "runs").iterdir()
    return run


def rows(run: Path) -> list[dict[str, Any]]:
    """Metrics without what is measured in seconds."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in found]


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str], timeout_s: float = 120) -> Path:
    """The run in `folder` once it has one; raises AssertionError with what was printed when there is none."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        for run in (folder / "runs").glob("*"):
            if committed(run / "checkpoints"):
                return run
        time.sleep(0.05)
    process.kill()
    raise AssertionError(process.communicate())


def wait_for_row(folder: Path, process: subprocess.Popen[str], step: int) -> Path:
    """The run in `folder` once it has logged that update."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for run in (folder / "runs").glob("*/metrics.jsonl"):
            if any(row["step"] >= step for row in read_metrics(run)):
                return run.parent
        time.sleep(0.05)
    raise AssertionError(process.communicate()[1])
