"""Spectrum-based fault localisation: which lines do failing tests run that passing tests do not?

Ochiai: score(line) = ef / sqrt(F * (ef + ep)), with F failing tests, of which ef run the line, and ep passing tests
that run it (Abreu, Zoeteweij, van Gemund: On the accuracy of spectrum-based fault localization, 2007).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from refork.envs.swe.source_edit import Edit

Line = tuple[str, int]
"""Workspace-relative path and line number from 1."""
Result = Literal["passed", "failed", "skipped", "missing"]
OUT_OF_TIME = "OutOfTime"
"""What a test that used up its CPU time fails with."""


@dataclass(frozen=True)
class Verdict:
    """What became of one test, and the lines of the package it ran."""

    result: Result
    error: str = ""
    """Type name of the exception it failed with."""
    frames: tuple[Line, ...] = ()
    """Lines of the package in its traceback, innermost first."""
    lines: frozenset[Line] = frozenset()

    @property
    def failing(self) -> bool:
        return self.result in ("failed", "missing")


@dataclass(frozen=True)
class Spectrum:
    """Verdicts by test id, and the lines run while the tests were imported (every test of the run needs them)."""

    verdicts: Mapping[str, Verdict]
    imported: frozenset[Line] = field(default_factory=frozenset)

    @property
    def failing(self) -> tuple[str, ...]:
        return tuple(sorted(test for test, verdict in self.verdicts.items() if verdict.failing))

    def overlaid(self, newer: Spectrum) -> Spectrum:
        """The verdicts of `newer` where it has them, ours elsewhere."""
        return Spectrum({**self.verdicts, **newer.verdicts}, self.imported | newer.imported)

    def moved(self, edit: Edit) -> Spectrum:
        """The same spectrum in line numbers after `edit`."""
        if edit.new_text.count("\n") == edit.end_line - edit.start_line:
            return self
        move = line_mover(edit)
        verdicts = {
            test: replace(v, frames=tuple(map(move, v.frames)), lines=_moved(v.lines, edit.path, move))
            for test, v in self.verdicts.items()
        }
        return Spectrum(verdicts, _moved(self.imported, edit.path, move))


def line_mover(edit: Edit) -> Callable[[Line], Line]:
    """Maps a line before `edit` to its place after it; lines that it took away go to the nearest it put there."""
    delta = edit.new_text.count("\n") - (edit.end_line - edit.start_line)

    def move(line: Line) -> Line:
        path, number = line
        if path != edit.path or number < edit.start_line:
            return line
        if number > edit.end_line or (number == edit.end_line and edit.end_col == 0):
            return path, number + delta
        return path, max(edit.start_line, min(number, edit.end_line + delta))

    return move


def _moved(lines: frozenset[Line], path: str, move: Callable[[Line], Line]) -> frozenset[Line]:
    return frozenset(map(move, lines)) if any(p == path for p, _ in lines) else lines


def counts(spectrum: Spectrum) -> tuple[dict[Line, int], dict[Line, int]]:
    """(failing, passing) tests per line; skipped tests count as neither."""
    failing: Counter[Line] = Counter()
    passing: Counter[Line] = Counter()
    for verdict in spectrum.verdicts.values():
        if verdict.failing:
            failing.update(verdict.lines or spectrum.imported)  # died on import: that is what it ran
        elif verdict.result == "passed":
            passing.update(verdict.lines)
    return failing, passing


def ochiai(spectrum: Spectrum) -> dict[Line, float]:
    """Score in (0, 1] of every line that a failing test ran. Lines run on import count as run by every test."""
    failing, passing = counts(spectrum)
    total = len(spectrum.failing)
    passed = sum(v.result == "passed" for v in spectrum.verdicts.values())
    scores = {line: ef / math.sqrt(total * (ef + passing.get(line, 0))) for line, ef in failing.items()}
    if total:
        flat = math.sqrt(total / (total + passed))
        for line in spectrum.imported:
            scores[line] = max(scores.get(line, 0.0), flat)
    return scores


def traceback_distance(spectrum: Spectrum) -> dict[Line, int]:
    """For each line in a failing test's traceback, how many frames of the package lie below it; the least of all."""
    distance: dict[Line, int] = {}
    for test in spectrum.failing:
        for depth, line in enumerate(spectrum.verdicts[test].frames):
            distance[line] = min(depth, distance.get(line, depth))
    return distance


def competition_ranks(values: Iterable[float]) -> list[float]:
    """Mean rank from 1 of each value, the largest first; equal values share their mean rank."""
    items = list(values)
    order = sorted(range(len(items)), key=lambda i: -items[i])
    ranks = [0.0] * len(items)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and items[order[end]] == items[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + end + 1) / 2
        start = end
    return ranks
