"""How long it takes to go back: snapshot + fork + first command, against what else one could do.

For each backend: dirty sizes of 0, 5 and 50 MiB, 1 to 64 forks of one snapshot, a workspace a hundred times larger,
200 snapshots in a row, and executing a prefix of 5, 20 and 50 commands again. `docker_plain` is `docker commit`, then
`docker run` and `docker exec` on the result. The last line is one JSON object; milliseconds throughout.

    python scripts/bench/fork.py [--short] [--backends overlay docker]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from refork.envs.forkable import StateRef
from refork.envs.swe.sandbox.base import Backend, Sandbox, SandboxSpec
from refork.scripts.bench import docker_plain
from refork.scripts.bench.sandboxes import backends, make_base, make_spec, percentile, scratch, summary, timed

MIB = 1 << 20
FIRST = ["true"]


def fork_once(sandbox: Sandbox) -> tuple[float, float, float]:
    """Milliseconds of a snapshot, of a fork, and of the fork's first command."""
    forks: list[Sandbox] = []
    snapshot = timed(sandbox.snapshot)
    fork = timed(lambda: forks.append(sandbox.fork()))
    command = timed(lambda: forks[0].run(FIRST))
    forks[0].close()
    return snapshot, fork, command


def dirty_rows(backend: Backend, spec: SandboxSpec, repeats: int) -> dict[str, Any]:
    """For each dirty size, one file rewritten before each snapshot: the snapshot alone, and all three together."""
    rows: dict[str, Any] = {}
    for size in (0, 5, 50):
        with backend.open(spec) as sandbox:
            times = []
            for number in range(max(4, repeats // (1 + size))):
                sandbox.put({"/testbed/dirty": bytes([number % 256]) * max(16, size * MIB)})
                times.append(fork_once(sandbox))
        rows[f"{size}_mib"] = {
            "snapshot": summary([t[0] for t in times]),
            "snapshot_fork_command": summary([sum(t) for t in times]),
        }
    return rows


def fan_rows(backend: Backend, spec: SandboxSpec, most: int) -> dict[str, Any]:
    """Milliseconds a fork with its first command takes when 1, 4, 16, 64 are made of one snapshot and stay open."""
    rows = {}
    with backend.open(spec) as sandbox:
        sandbox.put({"/testbed/dirty": b"1"})
        ref = sandbox.snapshot()
        for count in [n for n in (1, 4, 16, 64) if n <= most]:
            forks: list[Sandbox] = []
            times = [timed(partial(_open_and_run, backend, spec, ref, forks)) for _ in range(count)]
            for fork in forks:
                fork.close()
            rows[str(count)] = summary(times)
    return rows


def _open_and_run(backend: Backend, spec: SandboxSpec, ref: StateRef, forks: list[Sandbox]) -> None:
    forks.append(backend.open(spec, ref))
    forks[-1].run(FIRST)


def chain_rows(backend: Backend, spec: SandboxSpec, length: int) -> dict[str, Any]:
    """Snapshots in a row, each after a small change: whether the last are as fast as the first."""
    with backend.open(spec) as sandbox:
        times = []
        for step in range(length):
            sandbox.put({f"/testbed/f{step % 50}": str(step).encode()})
            times.append(timed(sandbox.snapshot))
        last = fork_once(sandbox)
    part = max(1, length // 5)
    return {
        "length": length,
        "first": summary(times[:part]),
        "last": summary(times[-part:]),
        "fork_command_at_the_end_ms": round(sum(last), 3),
    }


def prefix_rows(backend: Backend, spec: SandboxSpec, repeats: int) -> dict[str, Any]:
    """Going back to the state after k commands: by executing them again, and by restoring its snapshot."""
    rows: dict[str, Any] = {}
    for steps in (5, 20, 50):
        again, restored = [], []
        for _ in range(repeats):
            with backend.open(spec) as sandbox:
                again.append(timed(partial(_execute, sandbox, steps)))
                ref = sandbox.snapshot()
                restored.append(timed(partial(sandbox.restore, ref)) + timed(partial(sandbox.run, FIRST)))
        rows[str(steps)] = {
            "execute_again_ms": round(percentile(again, 0.5), 3),
            "restore_command_ms": round(percentile(restored, 0.5), 3),
        }
    return rows


def _execute(sandbox: Sandbox, steps: int) -> None:
    for number in range(steps):
        sandbox.run(["sh", "-c", f"echo {number} >> log"])


def backend_rows(backend: Backend, folder: Path, short: bool) -> dict[str, Any]:
    repeats = 30 if short else 200
    spec, large = make_spec(make_base(folder, 50)), make_spec(make_base(folder, 5000))
    with backend.open(spec) as sandbox:
        for _ in range(5):
            fork_once(sandbox)
    with backend.open(large) as sandbox:
        in_large = []
        for number in range(repeats // 4):
            sandbox.put({"/testbed/dirty": str(number).encode()})
            in_large.append(sum(fork_once(sandbox)))
    return {
        "dirty": dirty_rows(backend, spec, repeats),
        "large_workspace": summary(in_large),
        "forks_of_one_snapshot": fan_rows(backend, spec, 16 if short else 64),
        "chain": chain_rows(backend, spec, 50 if short else 200),
        "prefix": prefix_rows(backend, spec, 2 if short else 5),
    }


def headline(rows: dict[str, Any], plain: dict[str, float] | None) -> dict[str, Any]:
    """The keys other scripts read; `ratio` is how many times faster overlay is than commit + run + exec."""
    result: dict[str, Any] = {}
    for name, row in rows.items():
        clean = row["dirty"]["0_mib"]
        result[f"{name}_p50_ms"] = clean["snapshot_fork_command"]["p50_ms"]
        result[f"{name}_p99_ms"] = clean["snapshot_fork_command"]["p99_ms"]
        result[f"{name}_snapshot_p50_ms"] = clean["snapshot"]["p50_ms"]
    result["docker_plain_p50_ms"] = plain["p50_ms"] if plain else None
    if plain and "overlay" in rows:
        result["ratio"] = round(plain["p50_ms"] / result["overlay_p50_ms"], 1)
    else:
        result["ratio"] = None
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Time snapshot + fork + first command.")
    parser.add_argument("--short", action="store_true", help="fewer repeats: about ten seconds a backend")
    parser.add_argument("--backends", nargs="+", default=["overlay", "docker"], choices=["overlay", "docker"])
    given = parser.parse_args()
    rows: dict[str, Any] = {}
    with scratch() as folder:
        for name, backend in backends(folder, given.backends):
            rows[name] = backend_rows(backend, folder, given.short)
            print(json.dumps({name: rows[name]}, indent=2), flush=True)
        plain: Callable[[int], list[float]] | None = docker_plain.commit_run_exec if "docker" in rows else None
        baseline = summary(plain(3 if given.short else 10)) if plain else None
    print(json.dumps({**headline(rows, baseline), "rows": rows}))


if __name__ == "__main__":
    main()
