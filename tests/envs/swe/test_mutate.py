"""Mutation operators change exactly what they say, and nothing beside it."""

import ast
from pathlib import Path

import pytest
from refork.envs.swe.mutate import Mutation, mutations
from refork.envs.swe.mutation_operators import OPERATORS
from refork.envs.swe.source_edit import Source, apply, parses

EXACT = {
    ("comparison", "a < b"): {"a <= b"},
    ("comparison", "(a) <= (b)"): {"(a) < (b)"},
    ("comparison", "0 < a == b"): {"0 <= a == b", "0 < a != b"},
    ("comparison", "a is None"): {"a is not None"},
    ("comparison", "a in b"): {"a not in b"},
    ("direction", "a >= b"): {"a <= b"},
    ("direction", "a == b"): set(),
    ("boolean", "a and b"): {"a or b"},
    ("boolean", "f(a) or (b)"): {"f(a) and (b)"},
    ("negation", "not a"): {"a"},
    ("negation", "not(a or b)"): {"(a or b)"},
    ("negation", "a is not b"): {"a is b"},
    ("negation", "a not  in b"): set(),
    ("negation", "a not in b"): {"a in b"},
    ("arithmetic", "a + b"): {"a - b"},
    ("arithmetic", "a // b"): {"a * b"},
    ("arithmetic", "'%s' % a"): set(),
    ("off_by_one", "a[1]"): {"a[2]", "a[0]"},
    ("off_by_one", "a[0]"): {"a[1]"},
    ("off_by_one", "0x10"): set(),
    ("constant", "True"): {"False"},
    ("constant", "a[-1]"): {"a[1]"},
    ("constant", "''"): {"' '"},
    ("swapped_arguments", "f(a, (b), c=d)"): {"f(b, (a), c=d)"},
    ("swapped_arguments", "f(a, a)"): set(),
    ("swapped_arguments", "f(*a, b)"): set(),
    ("swapped_branches", "a if b else c"): {"c if b else a"},
    ("wrong_call", "min(a)"): {"max(a)"},
    ("wrong_call", "a.b . lstrip()"): {"a.b . rstrip()"},
}


@pytest.mark.parametrize(("operator", "expression"), EXACT)
def test_expression_operators(operator: str, expression: str) -> None:
    text = f"def g(a, b, c, d):\n    x = {expression}  # ü\n"
    found = {apply(text, m.edit) for m in mutations("m.py", text, [operator])}
    assert found == {f"def g(a, b, c, d):\n    x = {e}  # ü\n" for e in EXACT[operator, expression]}


STATEMENTS = {
    ("guard", "if a:\n        raise ValueError('é')"): {"pass"},
    ("guard", "if a:\n        return 1\n    else:\n        b()"): set(),
    ("guard", "if a:\n        b()"): set(),
    ("negation", "if a:\n        b()"): {"if not a:\n        b()"},
    ("dropped_return", "return a + b"): {"a + b"},
    ("dropped_return", "return None"): set(),
    ("arithmetic", "a += 1"): {"a -= 1"},
    ("loop_jump", "while a:\n        break"): {"while a:\n        continue"},
}


@pytest.mark.parametrize(("operator", "statement"), STATEMENTS)
def test_statement_operators(operator: str, statement: str) -> None:
    text = f"def g(a, b):\n    {statement}\n"
    found = {apply(text, m.edit) for m in mutations("m.py", text, [operator])}
    assert found == {f"def g(a, b):\n    {s}\n" for s in STATEMENTS[operator, statement]}


def test_an_elif_is_no_guard_to_remove() -> None:
    text = "def g(a, b):\n    if a:\n        a()\n    elif b:\n        return\n"
    assert mutations("m.py", text, ["guard"]) == []


UNTOUCHED = '''
LIMIT = 3 + 4
def g(a: "0 < 1" = 1 < 2) -> "1 + 1":
    """Doc 1 < 2."""
    b: Literal[0] = a
    return f"{a < 1}"
class C:
    size = 1
    @property(0)
    def h(self): return b
'''


def test_module_level_annotations_docstrings_and_f_strings_are_left_alone() -> None:
    assert mutations("m.py", UNTOUCHED, ["comparison", "off_by_one", "arithmetic", "constant"]) == []


def test_functions_have_qualified_names() -> None:
    text = "class C:\n    def f(self):\n        def g(): return 1 < 2\n        return g\n"
    assert [m.function for m in mutations("m.py", text, ["comparison"])] == ["C.f.g"]


def test_every_mutation_of_a_real_module_changes_only_its_span() -> None:
    text = Path(ast.__file__).read_text(encoding="utf-8")
    found = mutations("ast.py", text)
    assert {m.operator for m in found} == set(OPERATORS)
    assert found == sorted(set(found))
    for mutation in found[::40]:
        _check_span(text, mutation)


def _check_span(text: str, mutation: Mutation) -> None:
    start, end = Source(text).span(mutation.edit)
    old, new = text.encode(), apply(text, mutation.edit).encode()
    assert new[:start] == old[:start]
    assert new[start:] == mutation.edit.new_text.encode() + old[end:]
    assert parses(new.decode())


def test_unknown_operator_is_named() -> None:
    with pytest.raises(ValueError, match="no mutation operator 'typo'; there are: comparison, direction"):
        mutations("m.py", "", ["typo"])
