"""Ochiai against values worked out by hand; spectra that follow an edit."""

import math

import pytest
from refork.envs.swe.localise import Spectrum, Verdict, competition_ranks, ochiai, traceback_distance
from refork.envs.swe.source_edit import Edit


def lines(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("m.py", n) for n in numbers)


SPECTRUM = Spectrum(
    {
        "a": Verdict("failed", "AssertionError", (("m.py", 3), ("m.py", 1)), lines(1, 2, 3)),
        "b": Verdict("failed", "KeyError", (("m.py", 1),), lines(1, 3)),
        "c": Verdict("passed", lines=lines(1, 4)),
        "d": Verdict("passed", lines=lines(1, 2)),
        "e": Verdict("skipped", lines=lines(3)),
    },
    imported=lines(9),
)


def test_ochiai_scores() -> None:
    assert ochiai(SPECTRUM) == pytest.approx(
        {
            ("m.py", 1): 2 / math.sqrt(2 * 4),
            ("m.py", 2): 1 / math.sqrt(2 * 2),
            ("m.py", 3): 2 / math.sqrt(2 * 2),
            ("m.py", 9): 2 / math.sqrt(2 * 4),
        }
    )


def test_distance_is_counted_from_where_it_was_raised() -> None:
    assert traceback_distance(SPECTRUM) == {("m.py", 3): 0, ("m.py", 1): 0}
    deep = Spectrum({"a": Verdict("failed", "E", (("m.py", 3), ("m.py", 1)))})
    assert traceback_distance(deep) == {("m.py", 3): 0, ("m.py", 1): 1}


def test_a_test_that_died_on_import_points_at_the_imported_lines() -> None:
    spectrum = Spectrum({"a": Verdict("missing"), "b": Verdict("passed", lines=lines(1))}, lines(7))
    assert ochiai(spectrum) == pytest.approx({("m.py", 7): 1.0})


def test_nothing_fails_nothing_is_suspect() -> None:
    assert ochiai(Spectrum({"c": Verdict("passed", lines=lines(1))}, lines(2))) == {}


def test_newer_verdicts_replace_older_ones() -> None:
    newer = Spectrum({"a": Verdict("passed", lines=lines(5))})
    assert SPECTRUM.overlaid(newer).failing == ("b",)
    assert SPECTRUM.overlaid(newer).verdicts["b"] == SPECTRUM.verdicts["b"]


@pytest.mark.parametrize(
    ("edit", "after"),
    [
        (Edit("m.py", 3, 0, 3, 0, "x\ny\n"), [1, 2, 5, 6]),  # two lines put before line 3
        (Edit("m.py", 2, 0, 4, 0, ""), [1, 2, 2, 2]),  # lines 2 and 3 taken away
        (Edit("m.py", 2, 4, 2, 8, "a(\n b)"), [1, 2, 4, 5]),  # line 2 became two
        (Edit("m.py", 2, 4, 3, 8, "one"), [1, 2, 2, 3]),  # lines 2 and 3 became one
        (Edit("other.py", 1, 0, 1, 0, "x\n"), [1, 2, 3, 4]),
    ],
)
def test_lines_move_with_an_edit(edit: Edit, after: list[int]) -> None:
    moved = Spectrum({str(n): Verdict("passed", frames=(("m.py", n),), lines=lines(n)) for n in range(1, 5)}).moved(
        edit
    )
    assert [moved.verdicts[str(n)].frames for n in range(1, 5)] == [(("m.py", n),) for n in after]
    assert [moved.verdicts[str(n)].lines for n in range(1, 5)] == [lines(n) for n in after]


def test_equal_values_share_their_mean_rank() -> None:
    assert competition_ranks([0.5, 0.9, 0.5, 0.1]) == [2.5, 1.0, 2.5, 4.0]
