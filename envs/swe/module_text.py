"""One module's text in chunks of whole top-level statements, so that an edit costs the parse of one chunk only."""

from __future__ import annotations

import ast
import hashlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from refork.envs.swe.guards import templates
from refork.envs.swe.repair_operators import Candidate, candidates
from refork.envs.swe.source_edit import Edit, Source


@dataclass(frozen=True)
class ModuleText:
    """The chunks joined are the text. `path` is relative to the workspace."""

    path: str
    chunks: tuple[str, ...]

    @classmethod
    def of(cls, path: str, text: str) -> ModuleText:
        """Raises SyntaxError when `text` is no Python."""
        return cls(path, split(text))

    @cached_property
    def text(self) -> str:
        return "".join(self.chunks)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """First line of each chunk, from 1."""
        lines, starts = 1, []
        for chunk in self.chunks:
            starts.append(lines)
            lines += line_breaks(chunk)
        return tuple(starts)

    @cached_property
    def _heads(self) -> tuple[Any, ...]:
        """The digest of all that is before each chunk, to go on from."""
        digest, heads = hashlib.sha256(), []
        for chunk in self.chunks:
            heads.append(digest.copy())
            digest.update(chunk.encode())
        return (*heads, digest)

    @property
    def digest(self) -> str:
        """sha256 of the text's bytes (hex)."""
        return str(self._heads[-1].hexdigest())

    def digest_after(self, edit: Edit) -> str:
        """`self.edited(edit).digest`, cheaper."""
        index = self.chunk_at(edit.start_line)
        digest = self._heads[index].copy()
        digest.update(_source(self.chunks[index]).apply([moved(edit, "", 1 - self.starts[index])]).encode())
        digest.update("".join(self.chunks[index + 1 :]).encode())
        return str(digest.hexdigest())

    def chunk_at(self, line: int) -> int:
        """Index of the chunk that holds a line."""
        return bisect_right(self.starts, line) - 1

    def edited(self, *edits: Edit) -> ModuleText:
        """The module after edits, all placed by this text.

        Raises ValueError when two overlap, or one reaches over the end of a top-level statement.
        """
        by_chunk: dict[int, list[Edit]] = {}
        for edit in edits:
            index = self.chunk_at(edit.start_line)
            if self.chunk_at(edit.end_line) != index:
                raise ValueError(f"{self.path}: the edit reaches over the end of a top-level statement: {edit}")
            by_chunk.setdefault(index, []).append(moved(edit, "", 1 - self.starts[index]))
        chunks = list(self.chunks)
        for index, local in by_chunk.items():
            chunks[index] = _source(chunks[index]).apply(local)
        return ModuleText(self.path, tuple(chunks))

    def candidates(self, line: int) -> Iterator[Candidate]:
        """All candidate edits of the chunk that holds `line`, placed in this module."""
        index = self.chunk_at(line)
        known = tuple(t for chunk in self.chunks for t in templates(chunk))
        for c in candidates(self.chunks[index], known):
            down = self.starts[index] - 1
            edit = moved(c.edit, self.path, down)
            yield replace(c, edit=edit, statement_line=c.statement_line + down)


def moved(edit: Edit, path: str, lines: int) -> Edit:
    """The same edit `lines` further down, in file `path`."""
    e = edit
    return Edit(path, e.start_line + lines, e.start_col, e.end_line + lines, e.end_col, e.new_text)


def line_breaks(text: str) -> int:
    """Line ends of a text as the parser counts them."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")


_source = lru_cache(maxsize=512)(Source)


@lru_cache(maxsize=256)
def split(text: str) -> tuple[str, ...]:
    """Chunks of whole lines, each with at least one top-level statement; comments go with what is before them."""
    source, starts, end = Source(text), [], 0
    for node in ast.parse(text).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if first > end:
            starts.append(first)
        end = node.end_lineno or first
    data = text.encode("utf-8")
    offsets = [0, *(source.offset(line, 0) for line in starts[1:]), len(data)]
    return tuple(data[a:b].decode("utf-8") for a, b in pairwise(offsets))
