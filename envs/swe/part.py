"""Builds the part of one package, in a process of its own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from refork.envs.forkable import InfraFailure
from refork.envs.swe import bytecode
from refork.envs.swe.built import Built, Part, Quarantined
from refork.envs.swe.download import Pin
from refork.envs.swe.mutants import Lab
from refork.envs.swe.mutation_tasks import mutation_tasks
from refork.envs.swe.package import Layout, unpack_package
from refork.envs.swe.recipe import Recipe
from refork.envs.swe.release_pairs import release_pair
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.sandbox.overlay import OverlayBackend
from refork.envs.swe.sandbox.trees import remove_tree
from refork.envs.swe.survey import survey
from refork.envs.swe.task_rows import task_to_row, write_jsonl
from refork.envs.swe.taskset import ENVIRONMENT, QUARANTINE, SOLUTIONS, TASKS


def build_part(folder: Path, name: str, recipe: Recipe, files: Mapping[Pin, Path]) -> dict[str, Any]:
    """Build everything of `recipe` into a hidden folder beside `folder/name`, which the caller renames.

    Returns the report as JSON values. Raises InfraFailure.
    """
    start = time.monotonic()
    hidden = (folder / name).with_name(f".{recipe.package}")
    remove_tree(hidden)
    hidden.mkdir(parents=True)
    report: dict[str, Any] = {"fates": {}, "runs": 0}
    layers = hidden / "layers"  # of its own: nothing of a build is needed afterwards
    backend = OverlayBackend(layers)
    try:
        # beside the part, so that files can be hard links
        with tempfile.TemporaryDirectory(dir=hidden, prefix="work-") as work:
            made = list(_tasks(backend, recipe, files, Path(work), folder / ENVIRONMENT, report))
            report["tasks"] = _write(Part(hidden, name), recipe, made, folder / ENVIRONMENT)
    finally:
        backend.close()
        remove_tree(layers)
    report["seconds"] = round(time.monotonic() - start, 1)
    return report


def _tasks(
    backend: Backend, recipe: Recipe, files: Mapping[Pin, Path], work: Path, env: Path, report: dict[str, Any]
) -> Iterator[Built | Quarantined]:
    if recipe.mutation is not None:
        layout = Layout(recipe.sources, recipe.tests, recipe.python_path, recipe.drop)
        package = unpack_package(recipe.package, recipe.version, files[recipe.pin], work / recipe.version, layout)
        bytecode.store(env, package.python_files)
        lab = Lab(backend, package, survey(backend, package, env), env)
        yield from mutation_tasks(lab, recipe)
        report["runs"] = lab.runs
        report["fates"] = {f"{operator} {fate}": n for (operator, fate), n in sorted(lab.fates.items())}
    for pair in recipe.pair:
        try:
            yield release_pair(backend, recipe, pair, files, work / f"{pair.before}-{pair.after}", env)
        except InfraFailure as error:
            yield Quarantined(f"{recipe.package}-{pair.before}-{pair.after}", str(error))


def _write(part: Part, recipe: Recipe, made: list[Built | Quarantined], env: Path) -> int:
    built = [task for task in made if isinstance(task, Built)]
    for task in built:
        part.write_tests(task.judge)
    rows = [part.write(task, recipe.split) for task in built]
    bytecode.store(env, (part.folder / "bases" / t.instance_id / path for t in built for path in t.base))
    write_jsonl(part.folder / TASKS, [task_to_row(task) for task, _ in rows])
    write_jsonl(part.folder / SOLUTIONS, [solution for _, solution in rows])
    write_jsonl(
        part.folder / QUARANTINE,
        [{"instance_id": q.instance_id, "reason": q.reason} for q in made if isinstance(q, Quarantined)],
    )
    return len(built)
