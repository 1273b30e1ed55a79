"""Builds a task set from recipes: one part per package, each made apart and renamed into place when it is whole.

A set holds tasks.jsonl, solutions.jsonl, quarantine.jsonl, env/, downloads/ and packages/NAME/{bases,tests,solutions}/.
Building again does nothing when every part is there and made from the same recipe; an interrupted build goes on with
the parts that are missing.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from refork.envs.forkable import InfraFailure
from refork.envs.swe.download import Pin, fetch
from refork.envs.swe.environment import environment_stamp, install_environment
from refork.envs.swe.lock import locked
from refork.envs.swe.part import build_part
from refork.envs.swe.recipe import RECIPES, Recipe, read_environment, read_recipes
from refork.envs.swe.sandbox.trees import remove_tree
from refork.envs.swe.task_rows import read_rows, write_jsonl
from refork.envs.swe.taskset import ENVIRONMENT, QUARANTINE, SOLUTIONS, TASKS, TaskSet

FORMAT = 1
"""Counted up when parts built before must be built again."""
PARTS = "packages"
REPORT = "part.json"
Progress = Callable[[str], None]


@dataclass(frozen=True)
class BuildReport:
    """What a build did. `failures` says by package why a part could not be built; the next build tries again."""

    built: tuple[str, ...]
    kept: tuple[str, ...]
    failures: dict[str, str]
    tasks: int
    seconds: float


def build_taskset(
    folder: Path,
    packages: Sequence[str] = (),
    jobs: int = 2,
    recipes: Path = RECIPES,
    progress: Progress = print,
) -> BuildReport:
    """Have the parts of `packages` (empty: of all recipes) in `folder`. Raises BadInput, InfraFailure."""
    start = time.monotonic()
    chosen = read_recipes(recipes, tuple(packages))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        environment = read_environment(recipes)
        stamps = {recipe.package: _stamp(recipe, environment_stamp(environment)) for recipe in chosen}
        missing = [recipe for recipe in chosen if _built_stamp(folder, recipe.package) != stamps[recipe.package]]
        failures: dict[str, str] = {}
        install_environment(environment, folder / ENVIRONMENT)
        if missing:
            progress(f"building tasks of {', '.join(recipe.package for recipe in missing)} in {folder}")
            failures = _build(folder, missing, stamps, jobs, progress)
        if missing or not (folder / TASKS).exists():
            merge(folder)
    names = {recipe.package for recipe in missing}
    return BuildReport(
        built=tuple(sorted(names - set(failures))),
        kept=tuple(sorted(set(stamps) - names)),
        failures=failures,
        tasks=len(TaskSet(folder).tasks),
        seconds=time.monotonic() - start,
    )


def _stamp(recipe: Recipe, environment: str) -> str:
    rows = [FORMAT, recipe.model_dump(mode="json"), environment, list(sys.version_info[:3])]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _built_stamp(folder: Path, package: str) -> str | None:
    try:
        stamp: str = json.loads((folder / PARTS / package / REPORT).read_text())["stamp"]
    except FileNotFoundError:
        return None
    return stamp


def _build(
    folder: Path, missing: Sequence[Recipe], stamps: dict[str, str], jobs: int, progress: Progress
) -> dict[str, str]:
    for left_over in (folder / PARTS).glob(".*"):
        remove_tree(left_over)
    fetched = fetch((pin for recipe in missing for pin in pins(recipe)), folder / "downloads")
    failures = {pin.name: reason for pin, reason in fetched.errors.items() if any(pin == r.pin for r in missing)}
    todo = sorted((r for r in missing if r.package not in failures), key=_weight, reverse=True)
    if todo:
        with _pool(min(jobs, len(todo))) as pool:
            futures = {
                pool.submit(
                    build_part, folder, f"{PARTS}/{recipe.package}", recipe, dict(fetched.files)
                ): recipe.package
                for recipe in todo
            }
            for future in as_completed(futures):
                _finish(folder, futures[future], stamps[futures[future]], future, failures, progress)
    for package, reason in failures.items():
        progress(f"{package}: not built: {reason}")
    return failures


def _finish(
    folder: Path, package: str, stamp: str, future: Future[dict[str, Any]], failures: dict[str, str], progress: Progress
) -> None:
    try:
        report = future.result()
    except InfraFailure as error:
        failures[package] = str(error)
    except BrokenProcessPool:
        failures[package] = "the process that built it died; was it killed, for want of memory perhaps?"
    else:
        _publish(folder, package, {**report, "stamp": stamp})
        progress(f"{package}: {report['tasks']} tasks in {report['seconds']:.0f} s")


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when the block is left by an exception, Ctrl+C among them."""
    others = set(active_children())
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_die_on_interrupt)
    try:
        yield pool
    except BaseException:
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def pins(recipe: Recipe) -> list[Pin]:
    """Every source distribution that a recipe names."""
    pairs = [
        Pin(recipe.package, version, digest)
        for pair in recipe.pair
        for version, digest in ((pair.before, pair.before_sha256), (pair.after, pair.after_sha256))
    ]
    return [recipe.pin, *pairs]


def _weight(recipe: Recipe) -> int:
    mutation = recipe.mutation
    return (mutation.one + 2 * mutation.two + 3 * mutation.three if mutation else 0) + len(recipe.pair)


def _die_on_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _publish(folder: Path, package: str, report: dict[str, Any]) -> None:
    part, final = folder / PARTS / f".{package}", folder / PARTS / package
    (part / REPORT).write_text(json.dumps(report, indent=1, sort_keys=True))
    old = final.with_name(f".{package}.old")
    if final.exists():
        final.rename(old)
    part.rename(final)
    remove_tree(old)


def merge(folder: Path) -> None:
    """Make the set's files from its parts."""
    parts = sorted(path for path in (folder / PARTS).iterdir() if not path.name.startswith("."))
    for name in (SOLUTIONS, QUARANTINE, TASKS):
        write_jsonl(folder / name, [row for part in parts for _, row in read_rows(part / name)])


def reports(folder: Path) -> dict[str, dict[str, Any]]:
    """What building each part found: seconds, runs, fates of mutations by operator."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted((folder / PARTS).glob(f"*/{REPORT}"))}
