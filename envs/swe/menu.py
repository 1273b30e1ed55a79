"""The repair menu: candidate edits at the most suspicious lines, best first.

It sees the broken text and test runs only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from refork.envs.swe.localise import Line, Spectrum, competition_ranks, counts, ochiai, traceback_distance
from refork.envs.swe.module_text import ModuleText
from refork.envs.swe.naturalness import Change, file_model, gains, library_model
from refork.envs.swe.repair_operators import Candidate
from refork.envs.swe.source_edit import Source

NOT_IN_TRACEBACK = 99


@dataclass(frozen=True)
class Item:
    """One candidate with why it is suspected."""

    candidate: Candidate
    line: Line
    """Where coverage sees it."""
    score: float
    """Ochiai, in (0, 1]."""
    rank: float
    """Mean rank of its line among all suspicious lines, from 1."""
    failing: float
    """Share of the failing tests that run its line."""
    passing: float
    """Share of the passing tests that run it."""
    distance: int
    """Frames of the package below it in a failing test's traceback; NOT_IN_TRACEBACK."""
    key: str
    """Names the same edit in another version of the text: path, function, operator, line before and after."""
    removed: str
    added: str
    natural: float = 0.0
    """Change in log-probability under a model of the standard library; nats."""
    natural_here: float = 0.0
    """The same under a model of its own file."""

    def __str__(self) -> str:
        path, number = self.line
        return f"{path}:{number} [{self.candidate.operator}] - {self.removed.strip()}  + {self.added.strip()}"


@dataclass(frozen=True)
class Suspicion:
    """Lines by falling suspicion, and what is known of each."""

    lines: tuple[Line, ...]
    scores: Mapping[Line, float]
    ranks: Mapping[Line, float]
    failing: Mapping[Line, float]
    passing: Mapping[Line, float]
    distance: Mapping[Line, int]

    @classmethod
    def of(cls, spectrum: Spectrum) -> Suspicion:
        scores, distance = ochiai(spectrum), traceback_distance(spectrum)
        failing, passing = counts(spectrum)
        passed = max(1, sum(v.result == "passed" for v in spectrum.verdicts.values()))
        failed = max(1, len(spectrum.failing))
        order = sorted(scores, key=lambda x: (-round(scores[x], 9), distance.get(x, NOT_IN_TRACEBACK), x))
        return cls(
            tuple(order),
            scores,
            dict(zip(order, competition_ranks(round(scores[x], 9) for x in order), strict=True)),
            {line: n / failed for line, n in failing.items()},
            {line: n / passed for line, n in passing.items()},
            distance,
        )


def build_menu(
    modules: Mapping[str, ModuleText],
    spectrum: Spectrum,
    size: int,
    files: Mapping[str, ModuleText] | None = None,
) -> tuple[Item, ...]:
    """At most `size` candidates, in the order of their lines' suspicion; the same for the same input.

    Equally suspicious lines take turns, each with its next candidate, so that none crowds out the others. `files` are
    what edits are compared with when it is judged how natural they are (None: `modules`).
    """
    suspicion = Suspicion.of(spectrum)
    by_line: dict[Line, list[Candidate]] = {}
    parsed: set[tuple[str, int]] = set()
    chosen: list[tuple[Line, Candidate]] = []
    for _, lines in groupby(suspicion.lines, key=lambda line: round(suspicion.scores[line], 9)):
        if len(chosen) >= size:
            break
        tied = list(lines)
        for path, number in tied:
            module = modules.get(path)
            if module is not None and (chunk := (path, module.chunk_at(number))) not in parsed:
                parsed.add(chunk)
                for candidate in module.candidates(number):
                    by_line.setdefault(_seen_at(candidate, suspicion.scores), []).append(candidate)
        turns = [(i, place, line) for place, line in enumerate(tied) for i in range(len(by_line.get(line, ())))]
        chosen += [(line, by_line[line][i]) for i, _, line in sorted(turns)]
    return tuple(_items(modules, chosen[:size], suspicion, files or modules))


def _seen_at(candidate: Candidate, scores: Mapping[Line, float]) -> Line:
    """The line of a candidate that coverage knows: its own, else its statement's."""
    own = (candidate.edit.path, candidate.edit.start_line)
    return own if own in scores else (candidate.edit.path, candidate.statement_line)


def _items(
    modules: Mapping[str, ModuleText],
    chosen: Sequence[tuple[Line, Candidate]],
    suspicion: Suspicion,
    files: Mapping[str, ModuleText],
) -> Iterator[Item]:
    sources = {path: Source(modules[path].text) for path in sorted({line[0] for line, _ in chosen})}
    texts = [_difference(sources[line[0]], candidate) for line, candidate in chosen]
    changes = [_change(sources[line[0]], c, *text) for (line, c), text in zip(chosen, texts, strict=True)]
    natural = gains(library_model(), changes, without_old=False)
    here = np.zeros(len(chosen))
    for path in sources:
        own = [i for i, (line, _) in enumerate(chosen) if line[0] == path]
        here[own] = gains(file_model(files[path].text), [changes[i] for i in own], without_old=True)
    for i, (line, candidate) in enumerate(chosen):
        removed, added = texts[i]
        yield Item(
            candidate,
            line,
            suspicion.scores[line],
            suspicion.ranks[line],
            suspicion.failing.get(line, 0.0),
            suspicion.passing.get(line, 0.0),
            suspicion.distance.get(line, NOT_IN_TRACEBACK),
            "\0".join([line[0], candidate.function, candidate.operator, removed, added]),
            removed,
            added,
            float(natural[i]),
            float(here[i]),
        )


def _change(source: Source, candidate: Candidate, removed: str, added: str) -> Change:
    """The edit with the lines before and after it."""
    edit = candidate.edit
    before = source.line(edit.start_line - 1) if edit.start_line > 1 else ""
    after = source.line(edit.end_line + 1) if edit.end_line < source.lines else ""
    return Change.of(f"{before}\n{removed}\n{after}", f"{before}\n{added}\n{after}")


def _difference(source: Source, candidate: Candidate) -> tuple[str, str]:
    """The lines an edit takes away and those it puts there."""
    edit = candidate.edit
    lines = [source.line(n) for n in range(edit.start_line, edit.end_line + 1)]
    head = lines[0].encode()[: edit.start_col].decode()
    tail = lines[-1].encode()[edit.end_col :].decode()
    return "\n".join(lines), head + edit.new_text + tail
