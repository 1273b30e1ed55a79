"""A module in chunks: nothing lost, edits cost one chunk, digests are those of the whole text."""

import hashlib
import heapq
import statistics
from pathlib import Path

import pytest
from refork.envs.swe.module_text import ModuleText, line_breaks, split
from refork.envs.swe.source_edit import Edit, apply

SOURCE = '''"""Doc
string"""; import os
# about f
@cached
@property
def f(a):  # ü
    return a < 1


x = 1; y = 2
class C:
    z = (
        3)
# end
'''


def test_chunks_are_whole_statements_with_what_follows() -> None:
    assert split(SOURCE) == (
        '"""Doc\nstring"""; import os\n# about f\n',
        "@cached\n@property\ndef f(a):  # ü\n    return a < 1\n\n\n",
        "x = 1; y = 2\n",
        "class C:\n    z = (\n        3)\n# end\n",
    )
    assert split("") == ("",)
    assert split("# only a comment\n") == ("# only a comment\n",)


@pytest.mark.parametrize("text", [SOURCE, SOURCE.replace("\n", "\r\n"), Path(statistics.__file__).read_text()])
def test_nothing_is_lost(text: str) -> None:
    module = ModuleText.of("m.py", text)
    assert module.text == text
    assert module.digest == hashlib.sha256(text.encode()).hexdigest()
    assert module.starts[0] == 1
    assert [module.chunk_at(line) for line in module.starts] == list(range(len(module.chunks)))
    assert line_breaks(text) == len(text.splitlines())


def test_edits_are_those_of_the_text() -> None:
    text = Path(heapq.__file__).read_text()
    module = ModuleText.of("m.py", text)
    lines = [line for line in (130, 200, 260, 400, 460) if list(module.candidates(line))]
    edits = [next(iter(module.candidates(line))).edit for line in lines]
    assert len(edits) >= 3
    assert {edit.path for edit in edits} == {"m.py"}
    assert module.edited(*edits).text == apply(text, *edits)
    for edit in edits:
        assert module.edited(edit).text == apply(text, edit)
        assert module.digest_after(edit) == module.edited(edit).digest
        assert sum(a is not b for a, b in zip(module.edited(edit).chunks, module.chunks, strict=True)) == 1


def test_an_edit_over_two_statements_is_refused() -> None:
    with pytest.raises(ValueError, match=r"m\.py: the edit reaches over the end of a top-level statement"):
        ModuleText.of("m.py", SOURCE).edited(Edit("m.py", 7, 0, 10, 1, ""))


def test_candidates_stand_where_the_module_has_them() -> None:
    found = [c for c in ModuleText.of("m.py", SOURCE).candidates(4) if c.operator == "comparison"]
    assert [(c.edit, c.statement_line) for c in found] == [(Edit("m.py", 7, 13, 7, 14, "<="), 7)]


def test_guards_are_taken_from_the_whole_file() -> None:
    module = ModuleText.of("m.py", "def f(a):\n    if a is NONE: raise E(a)\n\ndef g(a):\n    pass\n    return a\n")
    assert "if a is NONE: raise E(a)" in {c.edit.new_text for c in module.candidates(5)}
