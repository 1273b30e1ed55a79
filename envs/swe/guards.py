"""Early exits for the repair menu: what a removed guard may have been, made after the guards of the same file.

A guard is `if condition:` with one `raise`, `return`, `continue` or `break` below it and no `else`. A guard of another
function can be put where all the names it uses are known: code repeats itself (Barr et al., "The plastic surgery
hypothesis", 2014).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from refork.envs.swe.source_edit import Edit, Site, Source

Function = ast.FunctionDef | ast.AsyncFunctionDef
LEAVES = ast.Raise | ast.Return | ast.Continue | ast.Break
GENERIC = (
    "if {0} is None: return None",
    "if not {0}: return {0}",
    "if not {0}: return",
    "if not {0}: raise ValueError({0!r})",
    "if {0} < 0: raise ValueError({0!r})",
)
MOST = 24
"""Guards per place."""


@dataclass(frozen=True)
class Scope:
    """Where a node stands."""

    name: str
    functions: tuple[Function, ...]
    """The functions around it, outermost first."""
    statement_line: int
    depth: int

    def at(self, node: ast.AST) -> Scope:
        if isinstance(node, ast.stmt):
            return replace(self, statement_line=node.lineno, depth=self.depth + 1)
        return self

    def inside(self, node: Function | ast.ClassDef) -> Scope:
        functions = self.functions if isinstance(node, ast.ClassDef) else (*self.functions, node)
        return Scope(f"{self.name}.{node.name}".lstrip("."), functions, node.lineno, 0)


@dataclass(frozen=True)
class Template:
    """A guard found somewhere: its text on one line, and the names it needs that are local where it was found."""

    text: str
    names: frozenset[str]


def parameters(function: Function) -> tuple[str, ...]:
    """All parameters in order, without `self` and `cls`."""
    a = function.args
    every = [*a.posonlyargs, *a.args, *filter(None, [a.vararg]), *a.kwonlyargs, *filter(None, [a.kwarg])]
    return tuple(x.arg for x in every if x.arg not in ("self", "cls"))


def local_names(function: Function) -> frozenset[str]:
    """Parameters and names bound in a function."""
    bound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return frozenset({*parameters(function), *bound, "self", "cls"})


@lru_cache(maxsize=4096)
def templates(text: str) -> tuple[Template, ...]:
    """The guards in the functions of `text`, in order, without repetition."""
    found: dict[str, Template] = {}
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, Function):
            own = local_names(function)
            for node in filter(_is_guard, ast.walk(function)):
                assert isinstance(node, ast.If)
                guard = f"if {ast.unparse(node.test)}: {ast.unparse(node.body[0])}"
                used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                found.setdefault(guard, Template(guard, frozenset(used) & own))
    return tuple(found.values())


def _is_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and not node.orelse and len(node.body) == 1 and isinstance(node.body[0], LEAVES)


def guard_edits(node: ast.AST, scope: Scope, source: Source, known: Iterable[Template]) -> Iterator[Edit]:
    """Guards in place of a `pass` on its own line; nowhere else, or they would crowd out every other edit."""
    if isinstance(node, ast.Pass) and source.line(node.lineno)[: node.col_offset].isspace():
        for text in fitting(scope.functions[-1], known):
            yield Site.of("", node).to(text)


def fitting(function: Function, known: Iterable[Template]) -> list[str]:
    """At most `MOST` guards whose names are known in `function`: as found, with one name for another, generic."""
    own, names = local_names(function), parameters(function)
    as_found = [t.text for t in known if t.names <= own]
    renamed = [
        re.sub(rf"\b{re.escape(old)}\b", new, t.text)
        for t in known
        for old in sorted(t.names)
        for new in names
        if new not in t.names and t.names - {old} <= own
    ]
    generic = [t.format(name) for name in names for t in GENERIC]
    return list(dict.fromkeys([*as_found, *renamed, *generic]))[:MOST]
