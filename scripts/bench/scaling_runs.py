"""Runs of `refork train` as a person starts them, and what they say of their own speed; for bench/scaling.py."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refork.replay.store import TrajectoryStore
from refork.scripts.bench.hosts import REFORK, Hosts


@dataclass(frozen=True)
class Work:
    """What is trained, the same for all runs that are compared."""

    name: str
    options: tuple[str, ...]
    """Of `refork train`, the job file first."""
    updates: int
    """The first one is not timed: in it actors start and import."""
    tasks: int
    """Per update."""

    @property
    def job(self) -> tuple[str, ...]:
        """What `refork train` is given."""
        size = ("--trainer.updates", str(self.updates), "--trainer.tasks_per_update", str(self.tasks))
        return (*self.options, *size, "--checkpoint.every", str(self.updates))


@dataclass(frozen=True)
class Place:
    """Where it runs. With `nodes` above 0, on a cluster with one actor on each of so many nodes beside the head."""

    actors: int = 0
    learners: int = 1
    staleness: int = 0
    nodes: int = 0

    @property
    def label(self) -> str:
        parts = [f"{value} {name}" for name, value in vars(self).items() if value]
        return ", ".join(parts)

    @property
    def options(self) -> tuple[str, ...]:
        spread = ("--rollout.resources.sandbox", "1") if self.nodes else ()
        return (
            *("--rollout.actors", str(self.actors), "--cluster.learners", str(self.learners)),
            *("--rollout.max_staleness", str(self.staleness), *spread),
        )


@dataclass(frozen=True)
class Measured:
    """One run. The lists have an entry for each update, the first included."""

    work: str
    place: Place
    first_step_s: float
    """From the command to the first update."""
    collect_s: list[float]
    """Seconds in which the loop waited for experience."""
    update_s: list[float]
    episodes: list[int]
    """Trajectories played, branches included."""
    units_s: list[list[float]] = field(default_factory=list)
    """Of each update, the seconds that each group was played for, in the order in which they were asked for."""

    @property
    def rate(self) -> float:
        """Episodes per second after the first update."""
        return sum(self.episodes[1:]) / (sum(self.collect_s[1:]) + sum(self.update_s[1:]))


def repair(tasks: Path, updates: int, count: int) -> Work:
    """The repair menu: every task is met once, nothing is answered from what was executed before."""
    options = ("repair_small", "--env.tasks", str(tasks), "--env.cache", "false", "--tracking.wandb", "off")
    return Work("repair", options, updates, count)


def chain(updates: int) -> Work:
    """The exact toy: an episode of some milliseconds, so that what is measured is all that is not playing."""
    return Work("chain", ("chain_small",), updates, 8)


def measure(work: Work, place: Place, hosts: Hosts | None = None) -> Measured:
    """Run it in a folder of its own. Raises SystemExit with what was said when it fails, or judged too little."""
    with tempfile.TemporaryDirectory(prefix="refork-scaling-") as name:
        folder = Path(name)
        process, begun = _start(work, place, folder, hosts), time.monotonic()
        first_step_s = _first_row(folder, process) - begun
        _, told = process.communicate()
        if process.returncode:
            raise SystemExit(f"{work.name}, {place.label}: {told}")
        (run,) = (folder / "runs").iterdir()
        return _read(work, place, run, first_step_s)


def _start(work: Work, place: Place, folder: Path, hosts: Hosts | None) -> subprocess.Popen[str]:
    command = [str(REFORK), "train", *work.job, *place.options]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB", "RAY_", "REFORK"))}
    environment = {**clean, "REFORK_HOME": str(folder / ".refork"), "OMP_NUM_THREADS": "1"}
    if hosts is not None:
        command = hosts.inside([*command, "--cluster.address", hosts.address])
        environment |= hosts.environment
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def _first_row(folder: Path, process: subprocess.Popen[str]) -> float:
    """When the first update was logged, or the process ended."""
    while process.poll() is None:
        if any(path.stat().st_size for path in folder.glob("runs/*/metrics.jsonl")):
            break
        time.sleep(0.05)
    return time.monotonic()


def _read(work: Work, place: Place, run: Path, first_step_s: float) -> Measured:
    rows: Sequence[dict[str, Any]] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    unjudged = sum(row["infra_errors"] + row["timeouts"] for row in rows)
    if unjudged:
        raise SystemExit(f"{work.name}, {place.label}: {unjudged:g} episodes were not judged; the rate says nothing")
    store = TrajectoryStore(run / "trajectories")
    units = [[sum(t.seconds for t in group.trajectories) for group in store.read(u)] for u in store.updates()]
    return Measured(
        work.name,
        place,
        first_step_s,
        [row["seconds_collect"] for row in rows],
        [row["seconds_update"] for row in rows],
        [int(row["trajectories"]) for row in rows],
        units,
    )
