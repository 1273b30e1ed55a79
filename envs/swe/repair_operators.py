"""Repair operators: the small edits that may take a bug out again, as candidates for the repair menu.

Most bugs of `mutation_operators` are their own inverse, so its operators serve here too. What a bug has *removed* needs
operators of its own: `guard` (an early exit, made after those of the same file) and `returned` (`f(x)` becomes
`return f(x)`). Nothing here knows which edits are right.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from refork.envs.swe import mutation_operators as mutate
from refork.envs.swe.guards import Scope, Template, guard_edits
from refork.envs.swe.source_edit import Edit, Site, Source

SYMMETRIC = (
    mutate.comparison,
    mutate.direction,
    mutate.off_by_one,
    mutate.swapped_arguments,
    mutate.loop_jump,
    mutate.swapped_branches,
    mutate.wrong_call,
)
ARITHMETIC = {
    token: sorted({mutate.ARITHMETIC[token], *(a for a, b in mutate.ARITHMETIC.items() if b == token)})
    for token in mutate.ARITHMETIC
}
_ORDERS = ast.Lt | ast.LtE | ast.Gt | ast.GtE
_NEGATABLE = ast.Name | ast.Attribute | ast.Call | ast.Subscript


@dataclass(frozen=True)
class Candidate:
    """One edit on the menu, placed by the text it was made from."""

    edit: Edit
    operator: str
    turn: int
    """Order among the candidates of a line: the operators take turns as `OPERATOR_NAMES` lists them."""
    function: str
    """Qualified name of the function it changes."""
    statement_line: int
    """First line of the statement it changes: where coverage may see it when it is not on its own line."""
    depth: int
    """Statements the edited one is nested in, within its function."""


def arithmetic(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """All operators that `mutate.arithmetic` may have replaced, and `+=` against `-=`."""
    if isinstance(node, ast.AugAssign):
        yield from mutate.arithmetic(path, node, source)
    elif isinstance(node, ast.BinOp) and (token := mutate.ARITHMETIC_TOKENS.get(type(node.op))):
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant | ast.JoinedStr):
            return  # formatting
        site = source.find(re.escape(token), Site.between(path, node.left, node.right))
        if site is not None:
            yield from (site.to(other) for other in ARITHMETIC[token])


def boolean(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """One `and` of any chain becomes `or`, and the reverse."""
    if isinstance(node, ast.BoolOp):
        old, new = (r"\band\b", "or") if isinstance(node.op, ast.And) else (r"\bor\b", "and")
        for left, right in pairwise(node.values):
            site = source.find(old, Site.between(path, left, right))
            if site is not None:
                yield site.to(new)


def negation(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`not a` becomes `a`, `is not` and `not in` lose theirs; a name, item or call used as a condition gets a `not`."""
    if isinstance(node, ast.UnaryOp | ast.Compare):
        yield from mutate.negation(path, node, source)
        return
    conditions: list[ast.expr] = []
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        conditions = [node.test]
    elif isinstance(node, ast.BoolOp):
        conditions = node.values
    elif isinstance(node, ast.comprehension):
        conditions = node.ifs
    elif isinstance(node, ast.Return) and node.value is not None:
        conditions = [node.value]
    for c in conditions:
        if isinstance(c, _NEGATABLE) or (isinstance(c, ast.Compare) and isinstance(c.ops[0], _ORDERS)):
            yield Edit(path, c.lineno, c.col_offset, c.lineno, c.col_offset, "not ")


def constant(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`True` against `False`, `1` against `-1`, `''` against `' '`."""
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool) or node.value == "":
        yield from mutate.constant(path, node, source)
    elif type(node.value) is int and node.value > 0:
        before = source.line(node.lineno).encode()[: node.col_offset].rstrip()
        if not before.endswith(b"-"):
            yield Site.of(path, node).to(f"-{node.value}")
    elif node.value == " ":
        yield Site.of(path, node).to("''")


def returned(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`f(x)` as a statement becomes `return f(x)`."""
    if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom | ast.Await):
        yield Edit(path, node.lineno, node.col_offset, node.lineno, node.col_offset, "return ")


_OWN = (boolean, arithmetic, negation, constant, returned)
OPERATORS: dict[str, mutate.Operator] = {f.__name__: f for f in (*SYMMETRIC, *_OWN)}
OPERATOR_NAMES = (*OPERATORS, "guard")


@lru_cache(maxsize=4096)
def candidates(text: str, known: tuple[Template, ...] = ()) -> tuple[Candidate, ...]:
    """All candidate edits in the functions of `text`, by line and turn; path '' and lines of `text` itself.

    `known` are the guards that may be copied. Raises SyntaxError when `text` does not parse.
    """
    source = Source(text)
    found: dict[Edit, Candidate] = {}
    turns: Counter[tuple[int, str]] = Counter()
    for node, scope in walk(ast.parse(text)):
        made = [(name, edit) for name, operator in OPERATORS.items() for edit in operator("", node, source)]
        made += [("guard", edit) for edit in guard_edits(node, scope, source, known)]
        for name, edit in made:
            if edit not in found and source.cut(edit) != edit.new_text:
                turn = turns[edit.start_line, name] * len(OPERATOR_NAMES) + OPERATOR_NAMES.index(name)
                turns[edit.start_line, name] += 1
                found[edit] = Candidate(edit, name, turn, scope.name, scope.statement_line, scope.depth)
    return tuple(sorted(found.values(), key=lambda c: (c.edit.start_line, c.turn, c.edit)))


def walk(tree: ast.Module) -> Iterator[tuple[ast.AST, Scope]]:
    """Every node of every function body with where it stands.

    No docstrings, annotations, decorators or insides of f-strings (Python 3.11 gives those wrong positions).
    """
    stack: list[tuple[ast.AST, Scope]] = [(tree, Scope("", (), 0, 0))]
    while stack:
        node, scope = stack.pop()
        if scope.functions:
            scope = scope.at(node)
            yield node, scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope, children = scope.inside(node), list[ast.AST](node.body)
        else:
            children = [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.arguments | ast.JoinedStr)]
            if isinstance(node, ast.AnnAssign):
                children.remove(node.annotation)
        stack += [(child, scope) for child in reversed(children) if not _docstring(child)]


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
