"""What breaks a node of Python source: each operator gives the edits that put one small, realistic bug there."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from refork.envs.swe.source_edit import Edit, Site, Source

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "in": "not in"}
COMPARISON_TOKENS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.In: "in",
}
REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
ARITHMETIC_TOKENS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
ARITHMETIC = {"+": "-", "-": "+", "*": "//", "/": "*", "//": "*", "%": "//"}
TWINS = [
    ("min", "max"),
    ("any", "all"),
    ("startswith", "endswith"),
    ("lstrip", "rstrip"),
    ("append", "appendleft"),
    ("pop", "popleft"),
    ("find", "rfind"),
    ("split", "rsplit"),
    ("lower", "upper"),
    ("floor", "ceil"),
    ("keys", "values"),
    ("bisect_left", "bisect_right"),
    ("takewhile", "dropwhile"),
]
NAMES = {a: b for pair in TWINS for a, b in (pair, pair[::-1])}


Operator = Callable[[str, ast.AST, Source], Iterator[Edit]]


def _replace(source: Source, site: Site, token: str, new: str) -> Iterator[Edit]:
    found = source.find(re.escape(token), site)
    if found is not None:
        yield found.to(new)


def comparison(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`a < b` becomes `a <= b`, `==` becomes `!=`, `is` becomes `is not`, `in` becomes `not in`."""
    if isinstance(node, ast.Compare):
        for op, left, right in zip(node.ops, [node.left, *node.comparators[:-1]], node.comparators, strict=True):
            if (token := COMPARISON_TOKENS.get(type(op))) is not None:
                yield from _replace(source, Site.between(path, left, right), token, COMPARISONS[token])


def direction(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`a < b` becomes `a > b`."""
    if isinstance(node, ast.Compare):
        for op, left, right in zip(node.ops, [node.left, *node.comparators[:-1]], node.comparators, strict=True):
            if (token := COMPARISON_TOKENS.get(type(op), "")) in REVERSED:
                yield from _replace(source, Site.between(path, left, right), token, REVERSED[token])


def boolean(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`a and b` becomes `a or b`, and the reverse."""
    if isinstance(node, ast.BoolOp) and len(node.values) == 2:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield from _replace(source, Site.between(path, *node.values), old, new)


def negation(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`not a` becomes `a`; `if a:` becomes `if not a:`; `is not` and `not in` lose their `not`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        width = 4 if source.cut(Site.of(path, node)).startswith("not ") else 3
        yield Edit(path, node.lineno, node.col_offset, node.lineno, node.col_offset + width, "")
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.IsNot | ast.NotIn):
        old, new = ("is not", "is") if isinstance(node.ops[0], ast.IsNot) else ("not in", "in")
        yield from _replace(source, Site.between(path, node.left, node.comparators[0]), old, new)
    elif isinstance(node, ast.If | ast.While) and isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
        yield Edit(path, node.test.lineno, node.test.col_offset, node.test.lineno, node.test.col_offset, "not ")


def arithmetic(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`a + b` becomes `a - b`, `*` becomes `//`, and so on; `+=` becomes `-=`."""
    if isinstance(node, ast.BinOp) and (token := ARITHMETIC_TOKENS.get(type(node.op))):
        if not (isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant | ast.JoinedStr)):
            yield from _replace(source, Site.between(path, node.left, node.right), token, ARITHMETIC[token])
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub):
        old, new = ("+=", "-=") if isinstance(node.op, ast.Add) else ("-=", "+=")
        yield from _replace(source, Site.between(path, node.target, node.value), old, new)


def off_by_one(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """The integer `n` becomes `n + 1` or `n - 1`."""
    if isinstance(node, ast.Constant) and type(node.value) is int and source.cut(Site.of(path, node)).isdecimal():
        yield Site.of(path, node).to(str(node.value + 1))
        if node.value > 0:
            yield Site.of(path, node).to(str(node.value - 1))


def constant(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`True` becomes `False`, and the reverse; `-1` becomes `1`; `''` becomes `' '`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield Site.of(path, node).to(str(not node.value))
    elif isinstance(node, ast.Constant) and node.value == "" and source.cut(Site.of(path, node)) in ("''", '""'):
        quote = source.cut(Site.of(path, node))[0]
        yield Site.of(path, node).to(f"{quote} {quote}")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        yield Site.of(path, node).to(source.cut(Site.of(path, node.operand)))


def guard(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`if a: raise/return/continue/break`, alone and without `else`, becomes `pass`."""
    if isinstance(node, ast.If) and not node.orelse and len(node.body) == 1:
        leaves = isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue | ast.Break)
        if leaves and source.cut(Site.of(path, node)).startswith("if"):
            yield Site.of(path, node).to("pass")


def swapped_arguments(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`f(a, b)` becomes `f(b, a)`."""
    if isinstance(node, ast.Call) and not any(isinstance(a, ast.Starred) for a in node.args):
        for first, second in zip(node.args, node.args[1:], strict=False):
            texts = [source.cut(Site.of(path, a)) for a in (first, second)]
            if texts[0] != texts[1]:
                middle = source.cut(Site.between(path, first, second))
                start, end = Site.of(path, first), Site.of(path, second)
                span = Site(path, start.start_line, start.start_col, end.end_line, end.end_col)
                yield span.to(texts[1] + middle + texts[0])


def dropped_return(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`return a` becomes `a`."""
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield Edit(path, node.lineno, node.col_offset, node.lineno, node.col_offset + len("return "), "")


def loop_jump(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`break` becomes `continue`, and the reverse."""
    if isinstance(node, ast.Break | ast.Continue):
        yield Site.of(path, node).to("continue" if isinstance(node, ast.Break) else "break")


def swapped_branches(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`a if c else b` becomes `b if c else a`."""
    if isinstance(node, ast.IfExp):
        body, test, orelse = (source.cut(Site.of(path, n)) for n in (node.body, node.test, node.orelse))
        to_test = source.cut(Site.between(path, node.body, node.test))
        to_else = source.cut(Site.between(path, node.test, node.orelse))
        start, end = Site.of(path, node.body), Site.of(path, node.orelse)
        span = Site(path, start.start_line, start.start_col, end.end_line, end.end_col)
        yield span.to(orelse + to_test + test + to_else + body)


def wrong_call(path: str, node: ast.AST, source: Source) -> Iterator[Edit]:
    """`min(a)` becomes `max(a)`, `s.lstrip()` becomes `s.rstrip()`: a call of the twin in `TWINS`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in NAMES:
        yield Site.of(path, node.func).to(NAMES[node.func.id])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMES:
        end = Site.of(path, node.func)
        start = end.end_col - len(node.func.attr.encode())
        yield Edit(path, end.end_line, start, end.end_line, end.end_col, NAMES[node.func.attr])


OPERATORS: dict[str, Operator] = {
    function.__name__: function
    for function in (
        comparison,
        direction,
        boolean,
        negation,
        arithmetic,
        off_by_one,
        constant,
        guard,
        swapped_arguments,
        dropped_return,
        loop_jump,
        swapped_branches,
        wrong_call,
    )
}
