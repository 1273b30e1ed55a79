"""Release pairs: the code of one version with the tests of the next, kept only if the audit finds them steady."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe import bytecode
from refork.envs.swe.audit import Observation, repeat, state_difference
from refork.envs.swe.built import Built, Quarantined
from refork.envs.swe.download import Pin
from refork.envs.swe.mutants import spread
from refork.envs.swe.package import Layout, Package, unpack_package
from refork.envs.swe.recipe import PairRecipe, Recipe
from refork.envs.swe.reports import problem_statement
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.survey import SURVEY_LIMITS
from refork.envs.swe.testrun import TestCommand

SLOW_TEST_S = 2.0
"""A test that takes longer is not asked for; far above the slowest there is, so that a busy machine changes nothing."""
MAX_PASSING = 1000
"""PASS_TO_PASS is cut to this many, evenly spread."""


def release_pair(
    backend: Backend, recipe: Recipe, pair: PairRecipe, files: Mapping[Pin, Path], work: Path, env: Path
) -> Built | Quarantined:
    """One task: FAIL_TO_PASS is what the new tests ask for beyond the old code. Raises InfraFailure."""
    layout = _layout(recipe, pair)
    before = _unpack(recipe, Pin(recipe.package, pair.before, pair.before_sha256), files, work / "before", layout)
    after = _unpack(recipe, Pin(recipe.package, pair.after, pair.after_sha256), files, work / "after", layout)
    bytecode.store(env, (*before.python_files, *after.python_files))
    instance_id = f"{recipe.package}-{pair.before}-{pair.after}"
    solution = _solution(before, after)
    tests = _laid_over(before, after)
    command = TestCommand(None, paths=layout.tests, python_path=layout.python_path, texts=True, limits=SURVEY_LIMITS)
    old = repeat(backend, before.spec(env), tests, command)
    new = repeat(backend, before.spec(env), {**solution, **tests}, command)
    steady = [test for test in new[0].outcomes if _steady(test, old, new)]
    fail_to_pass = tuple(test for test in steady if not old[0].run.passed(test))
    pass_to_pass = [test for test in steady if old[0].run.passed(test)]
    if not fail_to_pass:
        return Quarantined(instance_id, "the tests of the new version ask for nothing that the old code lacks")
    return Built(
        instance_id=instance_id,
        package=before,
        judge=after,
        kind="release_pair",
        base={},
        solution=solution,
        problem_statement=problem_statement(before, after, old[0].run, fail_to_pass),
        fail_to_pass=fail_to_pass,
        pass_to_pass=tuple(spread(pass_to_pass, MAX_PASSING)),
        uncached=state_difference(old) or state_difference(new) or "",
        metadata={"before": pair.before, "after": pair.after},
    )


def _steady(test: str, old: Sequence[Observation], new: Sequence[Observation]) -> bool:
    """Whether a test always passes on the new code, in time, and always comes out the same on the old."""
    fast = all(o.run.durations.get(test, 0.0) <= SLOW_TEST_S for o in (*old, *new))
    return fast and all(o.run.passed(test) for o in new) and len({o.outcomes.get(test) for o in old}) == 1


def _layout(recipe: Recipe, pair: PairRecipe) -> Layout:
    return Layout(
        sources=pair.sources or recipe.sources,
        tests=pair.tests or recipe.tests,
        python_path=recipe.python_path if pair.python_path is None else pair.python_path,
        drop=recipe.drop,
    )


def _unpack(recipe: Recipe, pin: Pin, files: Mapping[Pin, Path], folder: Path, layout: Layout) -> Package:
    if pin not in files:
        raise InfraFailure(f"{pin.label} could not be downloaded")
    return unpack_package(recipe.package, pin.version, files[pin], folder, layout)


def _solution(before: Package, after: Package) -> dict[str, bytes | None]:
    """The new version's modules; those it no longer has are removed."""
    removed = dict.fromkeys(set(before.source_files) - set(after.source_files))
    new = after.texts(after.source_files)
    return {**removed, **{path: text for path, text in new.items() if _old(before, path) != text}}


def _old(before: Package, path: str) -> bytes | None:
    file = before.folder / path
    return file.read_bytes() if file.is_file() else None


def _laid_over(before: Package, after: Package) -> dict[str, bytes | None]:
    """The new tests in place of the old ones."""
    return {**dict.fromkeys(before.test_files), **after.texts(after.test_files)}
