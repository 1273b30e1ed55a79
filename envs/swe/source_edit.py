"""Replace exact spans of Python source, so that formatting and comments around them stay as they are.

Positions are those of `ast`: lines from 1, columns from 0 counted in UTF-8 *bytes*. Lines end where the Python parser
ends them (`\\n`, `\\r\\n`, `\\r`), not where `str.splitlines` does: a form feed or a line separator ends no line.
Read sources with `decode(path.read_bytes())`: universal newlines would move the spans.
"""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterable
from dataclasses import dataclass

_NEWLINE = re.compile(rb"\r\n|\r|\n")
_COMMENT = re.compile(r"#[^\r\n]*")


@dataclass(frozen=True, order=True)
class Site:
    """A span of one file: [start, end), both as `ast` counts."""

    path: str
    start_line: int
    start_col: int
    end_line: int
    end_col: int

    @classmethod
    def of(cls, path: str, node: ast.expr | ast.stmt) -> Site:
        """The span of an `ast` node that came from a parser (it has an end position)."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return cls(path, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)

    @classmethod
    def between(cls, path: str, before: ast.expr, after: ast.expr) -> Site:
        """What lies between two nodes, e.g. the operator between two operands, spaces and brackets included."""
        assert before.end_lineno is not None
        assert before.end_col_offset is not None
        return cls(path, before.end_lineno, before.end_col_offset, after.lineno, after.col_offset)

    def to(self, new_text: str) -> Edit:
        return Edit(self.path, self.start_line, self.start_col, self.end_line, self.end_col, new_text)


@dataclass(frozen=True, order=True)
class Edit:
    """Put `new_text` in place of a span of `path`."""

    path: str
    start_line: int
    start_col: int
    end_line: int
    end_col: int
    new_text: str

    @property
    def site(self) -> Site:
        return Site(self.path, self.start_line, self.start_col, self.end_line, self.end_col)

    def touches(self, other: Edit) -> bool:
        """Whether the two, placed by the same text, overlap or meet."""
        mine = (self.start_line, self.start_col), (self.end_line, self.end_col)
        its = (other.start_line, other.start_col), (other.end_line, other.end_col)
        return self.path == other.path and mine[0] <= its[1] and its[0] <= mine[1]


def decode(data: bytes) -> str:
    """Source bytes as text, newlines untouched. Raises UnicodeDecodeError unless they are UTF-8 without a mark."""
    return data.decode("utf-8")


class Source:
    """One source text with its line starts, for many spans of the same text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._data = text.encode("utf-8")
        self._starts = [0, *(m.end() for m in _NEWLINE.finditer(self._data))]

    @property
    def lines(self) -> int:
        """How many lines there are; a text that ends with a line end has an empty last one."""
        return len(self._starts)

    def offset(self, line: int, col: int) -> int:
        """Byte offset of a position. Raises ValueError when it lies outside the text."""
        if not 1 <= line <= len(self._starts):
            raise ValueError(f"line {line} of a text with {len(self._starts)} lines")
        end = self._starts[line] if line < len(self._starts) else len(self._data)
        at = self._starts[line - 1] + col
        if col < 0 or at > end:
            raise ValueError(f"column {col} of line {line}, which has {end - self._starts[line - 1]} bytes")
        return at

    def span(self, site: Site | Edit) -> tuple[int, int]:
        """Byte offsets [start, end) of a span."""
        start = self.offset(site.start_line, site.start_col)
        end = self.offset(site.end_line, site.end_col)
        if end < start:
            raise ValueError(f"span ends before it starts: {site}")
        return start, end

    def cut(self, site: Site | Edit) -> str:
        """The text of a span."""
        start, end = self.span(site)
        return self._data[start:end].decode("utf-8")

    def line(self, number: int) -> str:
        """Line `number` (from 1) without its end."""
        start = self.offset(number, 0)
        match = _NEWLINE.search(self._data, start)
        return self._data[start : match.start() if match else None].decode("utf-8")

    def find(self, pattern: str, within: Site) -> Site | None:
        """The first match of a regular expression in a span, comments left out; None when there is none.

        For operators: `find("<", Site.between(path, left, right))`. The span must hold no string literal.
        """
        text = _COMMENT.sub(lambda m: " " * len(m[0].encode("utf-8")), self.cut(within))
        match = re.search(pattern, text)
        if match is None:
            return None
        start = self.span(within)[0] + len(text[: match.start()].encode("utf-8"))
        return Site(within.path, *self.position(start), *self.position(start + len(match[0].encode("utf-8"))))

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column) of a byte offset."""
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def apply(self, edits: Iterable[Edit]) -> str:
        """All edits at once, each placed by the *old* text. Raises ValueError when two overlap."""
        parts: list[bytes] = []
        done = 0
        for (start, end), edit in sorted((self.span(e), e) for e in edits):
            if start < done:
                raise ValueError(f"overlaps an edit before it: {edit}")
            parts += [self._data[done:start], edit.new_text.encode("utf-8")]
            done = end
        return b"".join([*parts, self._data[done:]]).decode("utf-8")


def apply(source: str, *edits: Edit) -> str:
    """`source` with the edits made, each placed by the old text. Raises ValueError: outside, or overlapping."""
    return Source(source).apply(edits)


def parses(source: str) -> bool:
    """Whether Python can compile it (compile, not only parse: `return` outside a function is no program)."""
    try:
        compile(source, "<edited>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
