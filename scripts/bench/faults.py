"""What faults cost a run: each is injected into a real run, and the run is compared with one that nothing happened to.

The chain is played, with actors, learners, or on a cluster of three nodes in a network namespace of this host (root).
`lost`: updates of the undisturbed run that are missing or differ in the end; `double`: trajectories that were counted
or stored twice; `recover_s`: seconds from the fault to the first update beyond the last one before it, with the time
it takes to notice and, where a person or a scheduler has to start the run again, with that start.

Where the disk under the sandboxes is full for three updates, repair tasks of a toy package are played, 20 updates;
`lost` are then those of which a rollout was masked, since all later ones learn something else, and it has recovered
with the first of which none was. A reward that the undisturbed run did not give to the same rollout, as long as both
have learnt the same, ends the measurement.

    python scripts/bench/faults.py [--quick] [--faults NAME ...] [--out FILE]

With `--out`, rows of other faults in FILE stay. The last line is one JSON object: `lost_steps`, `double_counted` and
`recover_s` by fault.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refork.cluster.tracking import read_metrics
from refork.replay.store import TrajectoryStore
from refork.scripts.bench.hosts import REFORK, Hosts, below
from refork.scripts.bench.toy_tasks import toy_set

JOB = ("train", "chain_small", "--checkpoint.every", "20", "--tracking.wandb", "off")
SMALL = ("--trainer.tasks_per_update", "3", "--trainer.group", "3")
REPAIR = ("train", "repair_small", "--env.tasks", "set", "--env.cache", "false", "--tracking.wandb", "off", *SMALL)
ACTORS = ("--rollout.actors", "2")
SANDBOX = ("--num-cpus", "1", "--resources", '{"sandbox": 1}')
PATIENCE_S = 300.0


@dataclass
class Run:
    """One run of the job in a folder of its own, started as a person starts it."""

    place: Path
    updates: int
    options: tuple[str, ...] = ()
    hosts: Hosts | None = None
    job: tuple[str, ...] = JOB
    process: subprocess.Popen[str] | None = None
    told: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        (found,) = (self.place / "runs").iterdir()
        return found

    def start(self, *command: str) -> None:
        """The job, or another command of `refork`."""
        whole = [str(REFORK), *(command or (*self.job, "--trainer.updates", str(self.updates), *self.options))]
        inside = self.hosts.inside(whole) if self.hosts else whole
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "REFORK"))}
        own = {"HOME": str(self.place), "REFORK_HOME": str(self.place / ".refork")}
        entry = self.hosts.environment if self.hosts else {}
        with (self.place / "told").open("a") as told:
            self.process = subprocess.Popen(
                inside, cwd=self.place, env=clean | own | entry, stdout=told, stderr=told, text=True
            )

    def resume(self, run: str = "") -> None:
        """As the command's last line says."""
        self.start("train", run or str(self.folder), "--resume", *self.options)

    @property
    def step(self) -> int:
        """The last update that was logged."""
        found = (self.place / "runs").glob("*/metrics.jsonl")
        return max((row["step"] for path in found for row in read_metrics(path)), default=0)

    def wait_for(self, step: int) -> None:
        """Raises SystemExit when the run ends, or nothing happens, before that update."""
        deadline = time.monotonic() + PATIENCE_S
        while self.step < step:
            ended = self.process is not None and self.process.poll() not in (None, 0)
            if ended or time.monotonic() > deadline:
                raise SystemExit(f"update {step} did not come:\n{(self.place / 'told').read_text()[-2000:]}")
            time.sleep(0.02)

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """The exit code."""
        assert self.process is not None
        return self.process.wait(patience_s)

    def below(self, title: str) -> list[int]:
        """Processes that this run started, by what they are called."""
        assert self.process is not None
        found = []
        for pid in below(self.process.pid):
            try:
                name = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if title in name:
                found.append(pid)
        return found


def kill_actor(run: Run) -> None:
    os.kill(run.below("ray::Rollout")[0], signal.SIGKILL)


def kill_learner(run: Run) -> None:
    os.kill(run.below("RayTrainWorker")[-1], signal.SIGKILL)


def kill_driver(run: Run) -> None:
    assert run.process is not None
    run.process.kill()
    run.ended()
    run.resume()


def notice(run: Run) -> None:
    """SIGTERM, as a scheduler sends it before it takes a machine away."""
    assert run.process is not None
    run.process.terminate()
    run.ended()
    run.resume()


def kill_node(run: Run) -> None:
    assert run.hosts is not None
    run.hosts.kill(run.hosts.nodes[-1])


def kill_head(run: Run) -> None:
    """With its host: the driver, which was there, and the run's folder. Another cluster goes on from the storage."""
    assert run.hosts is not None
    assert run.process is not None
    name = run.folder.name
    for pid in below(run.process.pid):
        os.kill(pid, signal.SIGKILL)
    run.ended()
    for node in run.hosts.nodes:
        run.hosts.kill(node)
    shutil.rmtree(run.folder)
    run.hosts.nodes.clear()
    start_nodes(run.hosts)
    run.resume(f"{(run.place / 'storage').as_uri()}/{name}")


def fill_disk(run: Run) -> None:
    """The disk that the run's folder is on; somebody makes room when the run has ended."""
    filler = fill(run.place)
    run.ended()
    filler.unlink()
    run.resume()


def fill(disk: Path) -> Path:
    """Write a file there until nothing fits any more."""
    filler = disk / "filler"
    with filler.open("wb", 0) as file, suppress(OSError):
        while file.write(bytes(1 << 12)):
            pass
    return filler


def fill_layers(run: Run) -> None:
    """The disk that the layers of the sandboxes are on; somebody makes room three updates later."""
    filler = fill(run.place / ".refork" / "layers")
    run.wait_for(run.step + 3)
    filler.unlink()


def start_nodes(hosts: Hosts) -> None:
    hosts.add("--num-cpus", "1")
    for _ in range(2):
        hosts.add(*SANDBOX)


def lost(run: Run, undisturbed: Run) -> int:
    """Updates whose row is missing, or differs in anything but seconds."""
    there, wanted = (_rows(r) for r in (run, undisturbed))
    return sum(there.get(step) != row for step, row in wanted.items())


def wait_for_whole(run: Run, after: int) -> None:
    """Until, after a row with masked rollouts, there is one without."""
    step = after
    while True:
        run.wait_for(step)
        rows = _rows(run)
        seen = [rows[at]["infra_errors"] > 0 for at in range(after, step + 1)]
        if any(seen) and not seen[-1]:
            return
        step += 1


def masked(run: Run, undisturbed: Run) -> int:
    """Updates that are missing or had a rollout masked. Raises SystemExit for a reward that is not the undisturbed
    run's, up to the first such update: the later ones have learnt something else."""
    there = _rows(run)
    missed = [step for step in _rows(undisturbed) if step not in there or there[step]["infra_errors"]]
    first = missed[0] if missed else run.updates
    given, right = (_rewards(r, first) for r in (run, undisturbed))
    if wrong := [key for key, value in given.items() if value is not None and right[key] != value]:
        raise SystemExit(f"rewards that are none: {wrong}")
    return len(missed)


def _rewards(run: Run, last: int) -> dict[str, float | None]:
    """Of every main rollout until the end of that update, by its key."""
    store = TrajectoryStore(run.folder / "trajectories")
    groups = [group for update in store.updates() if update < last for group in store.read(update)]
    return {rollout.key: rollout.value for group in groups for rollout in group.mains}


def repeated(run: Run, _undisturbed: Run) -> int:
    """Rows and trajectories that are there twice."""
    rows = Counter(row["step"] for row in read_metrics(run.folder / "metrics.jsonl"))
    return sum(count - 1 for found in (rows, _trajectories(run)) for count in found.values())


def double(run: Run, undisturbed: Run) -> int:
    """Rows or trajectories beyond those of the undisturbed run."""
    there, wanted = (_trajectories(r) for r in (run, undisturbed))
    rows = Counter(row["step"] for row in read_metrics(run.folder / "metrics.jsonl"))
    return sum((there - wanted).values()) + sum(count - 1 for count in rows.values())


def _rows(run: Run) -> dict[int, dict[str, Any]]:
    rows = read_metrics(run.folder / "metrics.jsonl")
    return {row["step"]: {k: v for k, v in row.items() if "seconds" not in k} for row in rows}


def _trajectories(run: Run) -> Counter[tuple[Any, ...]]:
    store = TrajectoryStore(run.folder / "trajectories")
    return Counter(
        (update, group.task, group.episode, trajectory.attempt)
        for update in store.updates()
        for group in store.read(update)
        for trajectory in group.trajectories
    )


def make_tasks(place: Path) -> None:
    """A task set of a toy package."""
    (place / "set").mkdir()
    toy_set(place / "set", 6)


@dataclass(frozen=True)
class Kind:
    """Of job: what is run, and what a fault did to it."""

    job: tuple[str, ...]
    prepare: Callable[[Path], None]
    """Makes what the job reads in its folder."""
    updates: int | None
    """None: as many as are asked for."""
    recover: Callable[[Run, int], None]
    """Waits until it goes on as before, from this update on."""
    lost: Callable[[Run, Run], int]
    """Of the run and an undisturbed one."""
    double: Callable[[Run, Run], int]

    def run(self, place: Path, updates: int, options: tuple[str, ...], hosts: Hosts | None = None) -> Run:
        self.prepare(place)
        return Run(place, self.updates or updates, options, hosts, self.job)


CHAIN = Kind(JOB, lambda place: None, None, Run.wait_for, lost, double)
SANDBOXES = Kind(REPAIR, make_tasks, 20, wait_for_whole, masked, repeated)


@dataclass(frozen=True)
class Fault:
    """How the run is run, and what happens to it."""

    options: tuple[str, ...]
    strike: Callable[[Run], None]
    """Does it, and starts the run again where somebody has to."""
    kind: Kind = CHAIN
    on_nodes: bool = False
    stored: bool = False
    """The run is kept in a storage as well."""
    disk: tuple[str, int] | None = None
    """A disk of its own at this place below the run's folder, in MiB."""

    @property
    def reference(self) -> tuple[Kind, tuple[str, ...]]:
        """What an undisturbed run needs to be alike: actors and nodes change nothing, several learners do."""
        return self.kind, self.options if self.kind is SANDBOXES or "--cluster.learners" in self.options else ()


ON_NODE = (*ACTORS, "--rollout.resources.sandbox", "1")
FAULTS = {
    "actor killed": Fault(ACTORS, kill_actor),
    "learner killed": Fault(("--cluster.learners", "2"), kill_learner),
    "driver killed": Fault(ACTORS, kill_driver),
    "host taken away (SIGTERM)": Fault(ACTORS, notice),
    "disk full": Fault((), fill_disk, disk=(".", 24)),
    "sandbox host out of disk": Fault(ACTORS, fill_layers, SANDBOXES, disk=(".refork/layers", 128)),
    "node killed": Fault(ON_NODE, kill_node, on_nodes=True),
    "head killed": Fault(ON_NODE, kill_head, on_nodes=True, stored=True),
}


@dataclass
class References:
    """Undisturbed runs."""

    place: Path
    updates: int
    runs: dict[tuple[Kind, tuple[str, ...]], Run] = field(default_factory=dict)

    def like(self, fault: Fault) -> Run:
        """That of a fault."""
        kind, options = fault.reference
        if (kind, options) not in self.runs:
            place = self.place / f"undisturbed{len(self.runs)}"
            place.mkdir()
            run = self.runs[kind, options] = kind.run(place, self.updates, options)
            run.start()
            if run.ended() != 0:
                raise SystemExit((place / "told").read_text())
        return self.runs[kind, options]


def small_disk(stack: ExitStack, place: Path, megabytes: int) -> None:
    """Mounted there until the end of the measurement."""
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "refork-faults", str(place)], check=True)
    stack.callback(subprocess.run, ["umount", "-l", str(place)], check=True)


def measured(fault: Fault, place: Path, updates: int, undisturbed: Run) -> dict[str, float]:
    """`lost`, `double`, `recover_s` of one fault."""
    options, kind = fault.options, fault.kind
    with ExitStack() as stack:
        hosts = None
        if fault.on_nodes:
            hosts = stack.enter_context(Hosts(place / "ray"))
            start_nodes(hosts)
            options = (*options, "--cluster.address", hosts.address)
        if fault.stored:
            options = (*options, "--storage", (place / "storage").as_uri())
        if fault.disk:
            below_place, megabytes = fault.disk
            small_disk(stack, place / below_place, megabytes)
        run = kind.run(place, updates, options, hosts)
        run.start()
        run.wait_for(run.updates // 3)
        begun, before = time.monotonic(), run.step
        fault.strike(run)
        kind.recover(run, before + 1)
        recovered = time.monotonic() - begun
        if run.ended() != 0:
            raise SystemExit(f"the run failed:\n{(place / 'told').read_text()[-2000:]}")
        return {"lost": kind.lost(run, undisturbed), "double": kind.double(run, undisturbed), "recover_s": recovered}


def main() -> None:
    """A line for each fault, and the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer updates, without the faults that need nodes")
    parser.add_argument("--faults", nargs="*", choices=list(FAULTS), help="default: all")
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    chosen = given.faults or [name for name in FAULTS if not (given.quick and FAULTS[name].on_nodes)]
    updates = 150 if given.quick else 600
    result: dict[str, dict[str, float]] = {"lost_steps": {}, "double_counted": {}, "recover_s": {}}
    with tempfile.TemporaryDirectory(prefix="faults-", dir="/tmp") as top:
        references = References(Path(top), updates)
        for number, fault in enumerate(chosen):
            place = Path(top) / str(number)
            place.mkdir()
            row = measured(FAULTS[fault], place, updates, references.like(FAULTS[fault]))
            for name, key in (("lost_steps", "lost"), ("double_counted", "double"), ("recover_s", "recover_s")):
                result[name][fault] = row[key]
            print(f"{fault:26} lost {row['lost']}  double {row['double']}  recovered in {row['recover_s']:.1f} s")
            sys.stdout.flush()
    if given.out:
        there = json.loads(given.out.read_text()) if given.out.exists() else {}
        merged = {key: {**there.get(key, {}), **rows} for key, rows in result.items()}
        given.out.write_text(json.dumps(merged, indent=1) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
