"""What is put on the menu, and in which order."""

from dataclasses import replace

from refork.envs.swe.localise import Spectrum, Verdict
from refork.envs.swe.menu import NOT_IN_TRACEBACK, build_menu
from refork.envs.swe.module_text import ModuleText

SOURCE = """def f(a, b):
    if a < b and a != 3:
        return a
    return g(
        b - 1)


def g(x):
    return x * 2
"""
MODULES = {"m.py": ModuleText.of("m.py", SOURCE)}


def lines(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("m.py", n) for n in numbers)


SPECTRUM = Spectrum(
    {
        "bad": Verdict("failed", "TypeError", (("m.py", 9), ("m.py", 4)), lines(2, 4, 9)),
        "good": Verdict("passed", lines=lines(2, 3)),
        "other": Verdict("passed", lines=lines(9)),
    }
)


def test_order_scores_and_texts() -> None:
    menu = build_menu(MODULES, SPECTRUM, 60)
    assert [str(item) for item in menu[:4]] == [
        "m.py:4 [negation] - return g(  + return not g(",
        "m.py:4 [off_by_one] - b - 1)  + b - 2)",
        "m.py:4 [arithmetic] - b - 1)  + b + 1)",
        "m.py:4 [off_by_one] - b - 1)  + b - 0)",
    ]
    tied = [item.line[1] for item in menu[4:]]
    assert tied[:4] == [9, 2, 9, 2]  # equally suspicious: the one nearer to the exception first, then in turns
    first, then = menu[0], menu[4]
    assert (first.score, first.rank, first.failing, first.passing, first.distance) == (1.0, 1.0, 1.0, 0.0, 1)
    assert (round(then.score, 6), then.rank, then.passing, then.distance) == (round(0.5**0.5, 6), 2.5, 0.5, 0)
    assert menu[5].distance == NOT_IN_TRACEBACK
    assert not [item for item in menu if item.line[1] == 3]


def test_the_menu_is_cut_at_its_size() -> None:
    whole = build_menu(MODULES, SPECTRUM, 60)
    assert build_menu(MODULES, SPECTRUM, 4) == whole[:4]
    assert len(whole) < 60


def test_lines_of_other_files_are_no_sites() -> None:
    elsewhere = Spectrum({"bad": Verdict("failed", lines=frozenset({("tests/t.py", 1), ("m.py", 9)}))})
    assert {item.line for item in build_menu(MODULES, elsewhere, 60)} == {("m.py", 9)}


def test_a_key_names_an_edit_in_spite_of_what_is_above_it() -> None:
    down = {"m.py": ModuleText.of("m.py", "# one more line\n" + SOURCE)}
    lower = {t: replace(v, lines=frozenset((p, n + 1) for p, n in v.lines)) for t, v in SPECTRUM.verdicts.items()}
    keys = [item.key for item in build_menu(MODULES, SPECTRUM, 60)]
    assert sorted(item.key for item in build_menu(down, Spectrum(lower), 60)) == sorted(keys)
