"""Every candidate edit, on small functions, exactly; none breaks the syntax; bugs of every operator can be undone."""

import ast
import heapq
import textwrap
from pathlib import Path

import pytest
from refork.envs.swe.guards import MOST, fitting, templates
from refork.envs.swe.mutate import mutations
from refork.envs.swe.repair_operators import OPERATOR_NAMES, candidates
from refork.envs.swe.source_edit import Edit, apply, parses


def results(body: str, operator: str) -> list[str]:
    """The body of `def f(a, b)` after each candidate of an operator."""
    source = "def f(a, b):\n" + textwrap.indent(body, "    ") + "\n"
    found = [c for c in candidates(source, templates(source)) if c.operator == operator]
    return [textwrap.dedent(apply(source, c.edit).split("\n", 1)[1]).rstrip("\n") for c in found]


@pytest.mark.parametrize(
    ("operator", "body", "after"),
    [
        ("comparison", "return a < b", ["return a <= b"]),
        ("direction", "return a <= b", ["return a >= b"]),
        ("boolean", "return a and b", ["return a or b"]),
        ("negation", "return not a", ["return a"]),
        ("negation", "if a and f(b):\n    pass", ["if not a and f(b):\n    pass", "if a and not f(b):\n    pass"]),
        ("negation", "return [c for c in b if c]", ["return [c for c in b if not c]"]),
        ("negation", "while a.x[0]:\n    b()", ["while not a.x[0]:\n    b()"]),
        ("arithmetic", "return a * b", ["return a / b", "return a // b"]),
        ("arithmetic", "return a // b", ["return a % b", "return a * b"]),
        ("arithmetic", "return '%s' % b", []),
        ("arithmetic", "a -= b", ["a += b"]),
        ("off_by_one", "return a[0]", ["return a[1]"]),
        ("off_by_one", "return a[2]", ["return a[3]", "return a[1]"]),
        ("constant", "return True", ["return False"]),
        ("constant", "return a[-1]", ["return a[1]"]),
        ("constant", "return a - 1", []),
        ("constant", "return a.join(' ')", ["return a.join('')"]),
        ("returned", "'''doc'''\na.pop()\nyield b\n'text'", ["'''doc'''\nreturn a.pop()\nyield b\n'text'"]),
        ("swapped_arguments", "return a(b, 2)", ["return a(2, b)"]),
        ("swapped_branches", "return a if b else 0", ["return 0 if b else a"]),
        ("loop_jump", "for a in b:\n    break", ["for a in b:\n    continue"]),
        ("wrong_call", "return min(a)", ["return max(a)"]),
    ],
)
def test_candidates(operator: str, body: str, after: list[str]) -> None:
    assert results(body, operator) == after


def test_a_constant_may_have_lost_its_sign() -> None:
    assert "return a[-1]" in results("return a[1]", "constant")


def test_guards_take_the_place_of_a_pass_and_of_nothing_else() -> None:
    body = "if a < 0:\n    raise ValueError\npass\nreturn a"
    after = results(body, "guard")
    assert after[0].split("\n")[2] == "if a < 0: raise ValueError"
    assert {r.split("\n")[2] for r in after} >= {"if b < 0: raise ValueError", "if b is None: return None"}
    assert results("if a: pass", "guard") == []


def test_a_guard_is_copied_only_where_its_names_are_known() -> None:
    source = "def g(n, rest):\n    if n < rest: raise IndexError\n    if n.x: return LIMIT\n\ndef f(n):\n    pass\n"
    function = ast.parse(source).body[1]
    assert isinstance(function, ast.FunctionDef)
    texts = fitting(function, templates(source))
    assert texts[0] == "if n.x: return LIMIT"
    assert not [t for t in texts if "rest" in t]
    many = templates("def g(n):\n" + "".join(f"    if n > {i}: return n\n" for i in range(50)))
    assert len(fitting(function, many)) == MOST


def test_where_a_candidate_stands() -> None:
    head = "class A:\n    @property\n    def f(self, x: int = 1):\n"
    source = head + "        if x:\n            return g(\n                x < 1)\n"
    found = [c for c in candidates(source) if c.operator == "comparison"]
    assert [(c.function, c.edit.start_line, c.statement_line, c.depth) for c in found] == [("A.f", 6, 5, 2)]


def test_annotations_defaults_docstrings_and_f_strings_are_left_alone() -> None:
    assert candidates('def f(a: 1 = 2) -> 3:\n    """4 < 5"""\n    b: "6" = f"{a < 7}"\n') == ()


@pytest.mark.parametrize("module", [heapq, textwrap])
def test_what_is_offered_for_real_code_compiles(module: object) -> None:
    source = Path(module.__file__).read_text()  # type: ignore[attr-defined]
    found = candidates(source, templates(source))
    assert len(found) > 200
    assert {c.operator for c in found} <= set(OPERATOR_NAMES)
    assert all(parses(apply(source, c.edit)) for c in found)


def test_bugs_can_be_taken_out_again() -> None:
    """All that real code can be broken with, but for guards, whose condition is gone."""
    undone: dict[str, list[bool]] = {}
    for module in (heapq, textwrap):
        source = Path(module.__file__).read_text()
        for mutation in mutations("", source)[::3]:
            broken = apply(source, mutation.edit)
            near = [c.edit for c in candidates(broken) if abs(c.edit.start_line - mutation.edit.start_line) <= 3]
            undone.setdefault(mutation.operator, []).append(any(same_code(apply(broken, e), source) for e in near))
    del undone["guard"]
    assert len(undone) >= 9
    assert {operator: sum(found) / len(found) for operator, found in undone.items()} == dict.fromkeys(undone, 1.0)


def same_code(a: str, b: str) -> bool:
    return a == b or "".join(a.split()) == "".join(b.split())


def test_an_edit_is_placed_in_its_own_text() -> None:
    found = {c.operator: c.edit for c in candidates("def f(a):\n    return a < 1\n")}
    assert found["comparison"] == Edit("", 2, 13, 2, 14, "<=")
