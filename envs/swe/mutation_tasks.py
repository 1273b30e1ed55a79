"""Turns mutants into audited tasks: chooses varied bugs, combines them, and writes down what a bug report would say."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from refork.envs.swe.audit import RUNS, outcome_difference, state_difference
from refork.envs.swe.built import Built, Quarantined
from refork.envs.swe.mutants import Lab, Mutant
from refork.envs.swe.mutate import Mutation
from refork.envs.swe.recipe import Recipe
from refork.envs.swe.reports import problem_statement

PER_FUNCTION = 3
"""At most this many one-bug tasks in one function."""
TRIES_PER_TASK = 8
"""Combinations tried at the most for each wanted task with several bugs."""
DRAWS_PER_TASK = 40
"""Combinations drawn at the most: some were drawn before, some have two bugs on one line."""


def mutation_tasks(lab: Lab, recipe: Recipe) -> Iterator[Built | Quarantined]:
    """The recipe's mutation tasks, or as many as can be had. Raises InfraFailure."""
    assert recipe.mutation is not None
    wanted = recipe.mutation
    singles = list(_singles(lab, recipe, wanted.one + 2 * max(wanted.two, wanted.three)))
    mutants = singles[: wanted.one]
    for size, count in ((2, wanted.two), (3, wanted.three)):
        mutants += _combined(lab, singles, size, count, f"{recipe.package} {wanted.seed} {size}")
    numbers: Counter[int] = Counter()
    for mutant in mutants:
        bugs = len(mutant.bugs)
        numbers[bugs] += 1
        yield _audited(lab, mutant, f"{recipe.package}-{recipe.version}-m{bugs}-{numbers[bugs]:04d}", wanted.seed)


def _singles(lab: Lab, recipe: Recipe, enough: int) -> Iterator[Mutant]:
    assert recipe.mutation is not None
    functions: Counter[tuple[str, str]] = Counter()
    found = 0
    for bug in lab.candidates(recipe.mutation.operators, recipe.mutation.seed):
        if found == enough:
            return
        key = (bug.edit.path, bug.function)
        if functions[key] < PER_FUNCTION and (mutant := lab.single(bug)) is not None:
            functions[key] += 1
            found += 1
            yield mutant


def _combined(lab: Lab, singles: Sequence[Mutant], size: int, count: int, seed: str) -> list[Mutant]:
    """Mutants with `size` bugs on different lines; half of them, where possible, within one file."""
    rng = random.Random(seed)
    bugs = [mutant.bugs[0] for mutant in singles]
    found: list[Mutant] = []
    tried: set[tuple[Mutation, ...]] = set()
    for number in range(count * DRAWS_PER_TASK):
        if len(found) == count or len(bugs) < size or len(tried) == count * TRIES_PER_TASK:
            break
        group = _draw(rng, bugs, size, near=number % 2 == 0)
        if group not in tried and _apart(group):
            tried.add(group)
            found += [mutant] if (mutant := lab.several(group)) is not None else []
    return found


def _draw(rng: random.Random, bugs: Sequence[Mutation], size: int, near: bool) -> tuple[Mutation, ...]:
    """`size` bugs, sorted; `near`: of one file, where it has so many."""
    first = rng.choice(bugs)
    others = [bug for bug in bugs if bug != first]
    in_file = [bug for bug in others if bug.edit.path == first.edit.path]
    return tuple(sorted((first, *rng.sample(in_file if near and len(in_file) >= size - 1 else others, size - 1))))


def _apart(bugs: Sequence[Mutation]) -> bool:
    """Whether no two bugs share a line."""
    return all(
        a.edit.path != b.edit.path or a.edit.end_line < b.edit.start_line or b.edit.end_line < a.edit.start_line
        for a, b in combinations(bugs, 2)
    )


def _audited(lab: Lab, mutant: Mutant, instance_id: str, seed: int) -> Built | Quarantined:
    broken = [mutant.observed, *(lab.again(mutant) for _ in range(RUNS - 1))]
    if flaky := outcome_difference(broken):
        return Quarantined(instance_id, flaky)
    clean = lab.clean(mutant)  # the survey ran it three times, here it is these tests alone
    if missed := [t for t in (*mutant.failing, *mutant.passing) if not clean.run.passed(t)]:
        return Quarantined(instance_id, f"{missed[0]} does not pass with the reference solution")
    return Built(
        instance_id=instance_id,
        package=lab.package,
        judge=lab.package,
        kind="mutation",
        base=mutant.files,
        solution={path: lab.texts[path].encode() for path in mutant.files},
        problem_statement=problem_statement(lab.package, lab.package, mutant.observed.run, mutant.failing),
        fail_to_pass=mutant.failing,
        pass_to_pass=mutant.passing,
        bugs=len(mutant.bugs),
        uncached=state_difference(broken) or lab.survey.uncached,
        metadata={"seed": seed},
        secret={"mutations": [_secret(bug) for bug in mutant.bugs]},
    )


def _secret(bug: Mutation) -> dict[str, object]:
    return {"operator": bug.operator, "function": bug.function, **dataclasses.asdict(bug.edit)}
