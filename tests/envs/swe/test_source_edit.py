"""Spans are replaced exactly: byte columns, odd line ends, several edits at once."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refork.envs.swe.source_edit import Edit, Site, Source, apply, decode, parses


def test_columns_are_utf8_bytes() -> None:
    source = "x = 'äöü€' + a  # ü\n"
    value = ast.parse(source).body[0].value  # type: ignore[attr-defined]
    assert apply(source, Site.of("m.py", value.right).to("b")) == "x = 'äöü€' + b  # ü\n"
    assert Source(source).cut(Site.between("m.py", value.left, value.right)) == " + "


def test_only_the_parser_s_line_ends_end_lines() -> None:
    source = "s = '\x0c\u2028\x1c'\r\nif a < b:\r    pass\n"
    compare = ast.parse(source).body[1].test  # type: ignore[attr-defined]
    assert compare.lineno == 2
    assert apply(source, Site.of("m.py", compare).to("a <= b")) == source.replace("a < b", "a <= b")
    assert Source(source).line(2) == "if a < b:"


def test_reading_keeps_line_ends() -> None:
    assert decode("a\r\nü".encode()) == "a\r\nü"
    with pytest.raises(UnicodeDecodeError):
        decode(b"\xff")


def test_an_operator_is_found_between_its_operands() -> None:
    source = "x = (ä  # not < this: ü\n  ) <(b)\n"
    compare = ast.parse(source).body[0].value  # type: ignore[attr-defined]
    site = Source(source).find("<", Site.between("m.py", compare.left, compare.comparators[0]))
    assert site == Site("m.py", 2, 4, 2, 5)
    assert apply(source, site.to("<=")) == "x = (ä  # not < this: ü\n  ) <=(b)\n"
    assert Source(source).find(">", Site.between("m.py", compare.left, compare.comparators[0])) is None


def test_several_edits_are_placed_by_the_old_text() -> None:
    source = "a + b\nc + d\n"
    edits = [Edit("m.py", 2, 0, 2, 1, "long"), Edit("m.py", 1, 4, 1, 5, ""), Edit("m.py", 1, 0, 1, 1, "x\ny")]
    assert apply(source, *edits) == "x\ny + \nlong + d\n"


def test_an_insertion_may_touch_an_edit_but_not_lie_in_it() -> None:
    assert apply("abc", Edit("m", 1, 1, 1, 1, "-"), Edit("m", 1, 1, 1, 2, "B")) == "a-Bc"
    with pytest.raises(ValueError, match="overlaps an edit before it"):
        apply("abc", Edit("m", 1, 0, 1, 2, "X"), Edit("m", 1, 1, 1, 1, "Y"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("m", 3, 0, 3, 0, ""), "line 3 of a text with 2 lines"),
        (Edit("m", 0, 0, 1, 0, ""), "line 0 of a text"),
        (Edit("m", 1, 3, 1, 3, ""), "column 3 of line 1, which has 2 bytes"),
        (Edit("m", 2, 1, 1, 0, ""), "ends before it starts"),
    ],
)
def test_a_span_outside_the_text_is_refused(edit: Edit, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply("a\nb", edit)


@given(st.text(alphabet="aü€\n\x0c𝄞 "), st.data())
def test_what_is_outside_the_span_stays(source: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(source)))
    end = data.draw(st.integers(start, len(source)))

    def position(index: int) -> tuple[int, int]:
        line = source[:index].count("\n") + 1
        return line, len(source[source.rfind("\n", 0, index) + 1 : index].encode())

    edit = Edit("m", *position(start), *position(end), "NEW")
    assert Source(source).cut(edit) == source[start:end]
    assert apply(source, edit) == source[:start] + "NEW" + source[end:]


def test_what_compiles() -> None:
    assert parses("def f():\n    return 1\n")
    assert not parses("return 1\n")
    assert not parses("a = (\n")
