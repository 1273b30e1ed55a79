"""How good is the repair menu, and how far do policies get that learn nothing? The last line is one JSON object.

This script, and nothing that plays, reads the reference solutions: an item is right when it brings a top-level
statement nearer to the solution's. Usage: menu.py [--tasks DIR] [--packages A,B] [--limit N] [--plays N] [--size N]
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from refork.envs.forkable import Reward
from refork.envs.swe.baselines import BASELINES
from refork.envs.swe.module_text import ModuleText
from refork.envs.swe.repair_menu import RepairMenuEnv
from refork.envs.swe.sandbox.opening import open_backend
from refork.envs.swe.task_rows import read_rows
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import SOLUTIONS, TaskSet
from refork.replay.dag import StateDag
from refork.replay.policy import Policy


@lru_cache(maxsize=4096)
def normal(chunk: str) -> tuple[str, ...]:
    """A statement's lines in a normal form, so that formatting does not count."""
    return tuple(ast.unparse(ast.parse(chunk)).split("\n"))


@lru_cache(maxsize=4096)
def distance(chunk: str, clean: str) -> int:
    """Differing places between two statements."""
    matcher = difflib.SequenceMatcher(a=normal(chunk), b=normal(clean), autojunk=False)
    return sum(tag != "equal" for tag, *_ in matcher.get_opcodes())


def right_places(env: RepairMenuEnv, clean: dict[str, ModuleText]) -> tuple[list[int], int]:
    """Places on the first menu of items that take a bug out, and how many of the bugs have one."""
    modules = env.workspace.modules
    places, fixed = [], set()
    for place, item in enumerate(env.menu().items):
        path, line = item.line
        if path not in clean:
            continue
        chunk = modules[path].chunk_at(line)
        after = modules[path].edited(item.candidate.edit).chunks[chunk]
        target = clean[path].chunks[chunk]
        if distance(after, target) < distance(modules[path].chunks[chunk], target):
            places.append(place)
            fixed.add((path, item.line[1]))
    return places, len(fixed)


def play(env: RepairMenuEnv, policy: Policy, rng: np.random.Generator) -> dict[str, float]:
    """One episode: solved, steps, steps executed, seconds."""
    begun = time.perf_counter()
    observation, _ = env.reset(seed=0)
    steps = executed = 0
    ended = False
    while not ended:
        probabilities = policy.probabilities(observation)
        action = int(rng.choice(len(probabilities), p=probabilities))
        observation, _, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        steps, executed = steps + 1, executed + bool(info["spent"].executed)
    solved = float(info["outcome"] == Reward(1.0))
    return {"solved": solved, "steps": steps, "executed": executed, "seconds": time.perf_counter() - begun}


def measure(env: RepairMenuEnv, task: SWETask, clean: dict[str, ModuleText], plays: int) -> dict[str, Any]:
    begun = time.perf_counter()
    _, info = env.reset(seed=0)
    reset_s = time.perf_counter() - begun
    places, fixed = right_places(env, clean)
    row: dict[str, Any] = {
        "task": task.instance_id,
        "bugs": task.bugs,
        "reset_s": reset_s,
        "failing": len(env.failing),
        "items": len(info["menu"]),
        "first_right": places[0] if places else None,
        "bugs_on_menu": fixed,
    }
    if plays:
        rng = np.random.default_rng(0)
        for name, policy in BASELINES.items():
            row[name] = [play(env, policy(), rng) for _ in range(plays if name == "random" else 1)]
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Shares of tasks: with a right item, with one for each bug, with the first right item in the first 1, 3, 10."""
    ranks = [1 + r["first_right"] for r in rows if r["first_right"] is not None]
    found: dict[str, Any] = {
        "tasks": len(rows),
        "some_right": len(ranks) / len(rows),
        "all_right": fmean(r["bugs_on_menu"] >= r["bugs"] for r in rows),
        "first": sum(r == 1 for r in ranks) / len(rows),
        "in_3": sum(r <= 3 for r in ranks) / len(rows),
        "in_10": sum(r <= 10 for r in ranks) / len(rows),
        "reciprocal_rank": sum(1 / r for r in ranks) / len(rows),
        "reset_s": median(r["reset_s"] for r in rows),
    }
    played = {name: [p for r in rows for p in r.get(name, [])] for name in BASELINES}
    found |= {f"{name}_solved": fmean(p["solved"] for p in plays) for name, plays in played.items() if plays}
    spent = [p for plays in played.values() for p in plays if p["executed"]]
    if spent:
        found["s_per_executed_step"] = sum(p["seconds"] for p in spent) / sum(p["executed"] for p in spent)
    return found


def tasks_of(tasks: TaskSet, packages: list[str], limit: int) -> Iterator[SWETask]:
    taken: dict[tuple[str, int], int] = defaultdict(int)
    for task in tasks.tasks:
        if task.kind == "mutation" and (not packages or task.package in packages):
            taken[task.package, task.bugs] += 1
            if not limit or taken[task.package, task.bugs] <= limit:
                yield task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--packages", default="", help="comma separated; all when left out")
    parser.add_argument("--limit", type=int, default=0, help="tasks per package and number of bugs; 0: all")
    parser.add_argument("--plays", type=int, default=2, help="random episodes per task; 0: menus only")
    parser.add_argument("--size", type=int, default=60)
    parser.add_argument("--backend", default="overlay")
    parser.add_argument("--cache", type=Path, help="state DAG to use; none when left out")
    arguments = parser.parse_args()
    tasks = TaskSet.open(arguments.tasks)
    solutions = {row["instance_id"]: row["folder"] for _, row in read_rows(tasks.folder / SOLUTIONS)}
    backend = open_backend(arguments.backend)
    cache = StateDag(arguments.cache) if arguments.cache else None
    rows: list[dict[str, Any]] = []
    try:
        for task in tasks_of(tasks, [p for p in arguments.packages.split(",") if p], arguments.limit):
            env = RepairMenuEnv(tasks, task, backend, cache, size=arguments.size)
            row = measure(env, task, clean_modules(tasks.folder / solutions[task.instance_id]), arguments.plays)
            env.close()
            print(json.dumps(row))
            rows.append(row)
    finally:
        backend.close()
        if cache:
            cache.close()
    groups = {f"{p}/{b}": [r for r in rows if r["task"].startswith(p) and r["bugs"] == b] for p, b in kinds(tasks)}
    print(json.dumps({"all": summary(rows), **{name: summary(group) for name, group in groups.items() if group}}))


def kinds(tasks: TaskSet) -> list[tuple[str, int]]:
    return sorted({(task.package, task.bugs) for task in tasks.tasks})


def clean_modules(folder: Path) -> dict[str, ModuleText]:
    paths = [path.relative_to(folder).as_posix() for path in folder.rglob("*.py")]
    return {path: ModuleText.of(path, (folder / path).read_text()) for path in paths}


if __name__ == "__main__":
    main()
