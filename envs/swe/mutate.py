"""Mutations: small, realistic bugs put at exact source spans, so that nothing else of the text changes.

Sites are the bodies of functions; docstrings, annotations, decorators and the insides of f-strings are left alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from refork.envs.swe.mutation_operators import OPERATORS
from refork.envs.swe.source_edit import Edit, Source


@dataclass(frozen=True, order=True)
class Mutation:
    """One bug: `edit` puts it into the clean text. `function` is the qualified name of the function it is in."""

    edit: Edit
    operator: str
    function: str


def mutations(path: str, text: str, operators: Iterable[str] = tuple(OPERATORS)) -> list[Mutation]:
    """All bugs that `operators` can put into the functions of `text`, sorted. Not all compile: see `parses`.

    Raises SyntaxError when `text` does not parse, ValueError for an operator that is none of `OPERATORS`.
    """
    chosen = list(operators)
    if unknown := sorted(set(chosen) - set(OPERATORS)):
        raise ValueError(f"no mutation operator {unknown[0]!r}; there are: {', '.join(OPERATORS)}")
    source = Source(text)
    found: set[Mutation] = set()
    for node, function in _nodes(ast.parse(text)):
        for name in chosen:
            found |= {Mutation(edit, name, function) for edit in OPERATORS[name](path, node, source)}
    return sorted(m for m in found if source.cut(m.edit) != m.edit.new_text)


def function_spans(text: str) -> dict[str, tuple[int, int]]:
    """First and last line of each function by qualified name; of two with one name the later."""
    spans: dict[str, tuple[int, int]] = {}
    stack: list[tuple[ast.AST, str]] = [(ast.parse(text), "")]
    while stack:
        node, name = stack.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{name}.{node.name}".lstrip(".")
            if not isinstance(node, ast.ClassDef):
                spans[name] = (node.lineno, node.end_lineno or node.lineno)
        stack += [(child, name) for child in reversed(list(ast.iter_child_nodes(node)))]
    return spans


def _nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node of every function body, with the function's qualified name."""
    stack: list[tuple[ast.AST, str, bool]] = [(tree, "", False)]
    while stack:
        node, name, inside = stack.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{name}.{node.name}".lstrip(".")
            inside = inside or not isinstance(node, ast.ClassDef)
            children: list[ast.AST] = list(node.body)
        else:
            if isinstance(node, ast.JoinedStr):  # Python 3.11 gives what is inside wrong positions
                continue
            if inside:
                yield node, name
            children = [c for field, c in _fields(node) if field not in ("annotation", "decorator_list", "returns")]
        stack += [(c, name, inside) for c in reversed(children) if not _docstring(c)]


def _fields(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
