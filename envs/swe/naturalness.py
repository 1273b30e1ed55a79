"""How natural an edit makes the code: the change in log-probability under a trigram model of Python tokens.

Bugs are less natural than the code around them (Ray et al., "On the naturalness of buggy code", ICSE 2016). Two models:
one of the standard library of the running interpreter, read once and kept in the home folder, and one of the edited
file itself, without the edited lines. Neither has seen a task's solution. Interpolation is Witten and Bell's.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from refork.envs.forkable import InfraFailure
from refork.envs.home import home

FORMAT = 2
FLOOR = 1e-5
"""Probability of an unknown token before all evidence."""
_TOKEN = re.compile(
    r"#[^\n]*"
    r"|[rbufRBUF]{0,2}(?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|\d[\w.]*|\w+|\*\*=?|//=?|>>=?|<<=?|[-+*/%&|^@=<>!]=|->|:=|\n[ \t]*|\S"
)
_SKIPPED = ("test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "ensurepip", "__pycache__")
_MASK = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15


def tokens(text: str) -> list[str]:
    """Tokens without comments, indentation and blank lines; a string is 'S', the empty one ''."""
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token[0] == "\n":
            if found and found[-1] != "\n":
                found.append("\n")
        elif token[-1] in "\"'" and len(token) > 1:
            found.append("''" if len(token) == 2 else "S")
        elif token[0] != "#":
            found.append(token)
    return found


@lru_cache(maxsize=1 << 17)
def token_id(token: str) -> int:
    """A 64-bit number that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(token.encode(), digest_size=8).digest(), "little")


def mixed(first: int, second: int) -> int:
    """The number of two numbers in order."""
    return (first * _MIX + second) & _MASK


Gram = tuple[int, int, int]
"""Three tokens by number; 0 before the first."""


@dataclass(frozen=True)
class LeftOut:
    """N-grams and contexts, by number, of which one occurrence is not to be counted."""

    keys: frozenset[int] = frozenset()
    contexts: frozenset[int] = frozenset()


NOTHING = LeftOut()


@dataclass(frozen=True)
class Order:
    """Counts of n-grams of one length, and of the contexts they stand in; keys sorted, uint64."""

    keys: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    """Occurrences by context."""
    kinds: np.ndarray
    """Different tokens that follow, by context."""

    @classmethod
    def of(cls, contexts: np.ndarray, last: np.ndarray) -> Order:
        with np.errstate(over="ignore"):
            grams = contexts * np.uint64(_MIX) + last
        keys, first, counts = np.unique(grams, return_index=True, return_counts=True)
        known, inverse = np.unique(contexts[first], return_inverse=True)
        totals = np.bincount(inverse, weights=counts)
        return cls(keys, counts.astype(np.int64), known, totals.astype(np.int64), np.bincount(inverse))

    def interpolate(
        self,
        lower: np.ndarray,
        contexts: np.ndarray,
        keys: np.ndarray,
        fewer: np.ndarray,
        fewer_in_context: np.ndarray,
    ) -> np.ndarray:
        """Probabilities of n-grams, given those of one order less; the last two are occurrences not to be counted."""
        count = np.maximum(_lookup(self.keys, self.counts, keys) - fewer, 0)
        total = np.maximum(_lookup(self.contexts, self.totals, contexts) - fewer_in_context, 0)
        kinds = _lookup(self.contexts, self.kinds, contexts)
        seen = total > 0
        return np.where(seen, (count + kinds * lower) / np.where(seen, total + kinds, 1), lower)


def _lookup(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if not len(keys):
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)


@dataclass(frozen=True)
class Trigrams:
    """A trigram model: orders one, two and three."""

    orders: tuple[Order, Order, Order]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Trigrams:
        ids: list[int] = []
        for text in texts:
            ids += [0, 0, *map(token_id, tokens(text))]
        a = np.array(ids, dtype=np.uint64)
        first, second, last = a[:-2], a[1:-1], a[2:]
        inside = last != 0
        with np.errstate(over="ignore"):
            pairs = first * np.uint64(_MIX) + second
        contexts = (np.zeros_like(last), second, pairs)
        one, two, three = (Order.of(context[inside], last[inside]) for context in contexts)
        return cls((one, two, three))

    def log_probabilities(self, grams: Sequence[Gram], left_out: Sequence[LeftOut]) -> np.ndarray:
        """(n,) natural logarithms of P(third token | first, second), each without its `left_out`."""
        p = np.full(len(grams), FLOOR)
        for n, order in enumerate(self.orders):
            rows = [levels(gram)[n] for gram in grams]
            contexts, keys = (np.array(column, np.uint64) for column in zip(*rows, strict=True))
            minus = np.array([[k in out.keys, c in out.contexts] for (c, k), out in zip(rows, left_out, strict=True)])
            p = order.interpolate(p, contexts, keys, minus[:, 0], minus[:, 1])
        return np.log(p)


def levels(gram: Gram) -> tuple[tuple[int, int], ...]:
    """(context, n-gram) as numbers, for one, two and three tokens."""
    a, b, c = gram
    ab = mixed(a, b)
    return (0, mixed(0, c)), (b, mixed(b, c)), (ab, mixed(ab, c))


def leave_out(ids: Sequence[int]) -> LeftOut:
    """Every n-gram and context that a run of tokens adds to a count."""
    rows = [row for i in range(2, len(ids)) for row in levels((ids[i - 2], ids[i - 1], ids[i]))]
    return LeftOut(frozenset(key for _, key in rows), frozenset(context for context, _ in rows if context))


@dataclass(frozen=True)
class Change:
    """The tokens around an edit, before and after; equal up to the edit and after it."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @classmethod
    def of(cls, before: str, after: str) -> Change:
        return cls(*((0, 0, *map(token_id, tokens(text))) for text in (before, after)))

    def grams(self) -> tuple[list[Gram], list[Gram]]:
        """The trigrams that differ, before and after."""
        old, new = self.before, self.after
        head = next((i for i, (x, y) in enumerate(zip(old, new, strict=False)) if x != y), min(len(old), len(new)))
        tail = 0
        while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
            tail += 1
        ends = (min(len(side), len(side) - tail + 2) for side in (old, new))
        first, second = (
            [(side[i - 2], side[i - 1], side[i]) for i in range(max(2, head), end)]
            for side, end in zip((old, new), ends, strict=True)
        )
        return first, second


def gains(model: Trigrams, changes: Sequence[Change], without_old: bool) -> np.ndarray:
    """(n,) changes in log-probability. `without_old`: the model has seen the lines as they are; leave them out."""
    if not changes:
        return np.zeros(0)
    grams: list[Gram] = []
    left: list[LeftOut] = []
    signs: list[float] = []
    places: list[int] = []
    for place, change in enumerate(changes):
        out = leave_out(change.before) if without_old else NOTHING
        for sign, side in zip((-1.0, 1.0), change.grams(), strict=True):
            grams += side
            signs += [sign] * len(side)
            places += [place] * len(side)
            left += [out] * len(side)
    if not grams:
        return np.zeros(len(changes))
    values = model.log_probabilities(grams, left) * signs
    return np.bincount(places, weights=values, minlength=len(changes))


@lru_cache(maxsize=64)
def file_model(text: str) -> Trigrams:
    """The model of one file."""
    return Trigrams.of([text])


@lru_cache(maxsize=1)
def library_model() -> Trigrams:
    """The model of the standard library: read from the home folder, where it is put when it is first asked for.

    Raises InfraFailure when the interpreter has no library sources.
    """
    files = library_files()
    stamp = hashlib.sha256(repr([FORMAT, sys.version, [f.stat().st_size for f in files]]).encode()).hexdigest()
    path = home() / f"trigrams-{stamp[:16]}.npz"
    if path.exists():
        return _load(path)
    model = Trigrams.of(file.read_text(encoding="utf-8", errors="replace") for file in files)
    _save(model, path)
    return model


def library_files() -> list[Path]:
    """Modules of the standard library, without its tests."""
    folder = Path(sysconfig.get_path("stdlib"))
    found = [*folder.glob("*.py"), *folder.glob("*/*.py")]
    files = sorted(f for f in found if not set(f.relative_to(folder).parts) & set(_SKIPPED))
    if not files:
        raise InfraFailure(f"no sources of the standard library in {folder}: install a Python that has them")
    return files


_FIELDS = ("keys", "counts", "contexts", "totals", "kinds")


def _save(model: Trigrams, path: Path) -> None:
    arrays = {f"{name}{n}": getattr(order, name) for n, order in enumerate(model.orders) for name in _FIELDS}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.npz")
    np.savez(part, **arrays)
    part.replace(path)


def _load(path: Path) -> Trigrams:
    with np.load(path) as arrays:
        one, two, three = (Order(*(arrays[f"{name}{n}"] for name in _FIELDS)) for n in range(3))
    return Trigrams((one, two, three))
