"""Test runs as spectra: complete, stored exactly, honest about what did not run."""

from collections.abc import Iterator

import pytest
from refork.envs.swe.localise import Spectrum, Verdict
from refork.envs.swe.prober import Prober, decode_spectrum, encode_spectrum
from refork.envs.swe.sandbox.base import Backend, Sandbox

from tests.envs.swe.doubles import MemoryCache
from tests.envs.swe.toy import CLEAN, NAMES, toy_tasks

TESTS = tuple(f"tests/test_calc.py::{name}" for name in NAMES)


@pytest.fixture(scope="module")
def sandbox(overlay: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    tasks = toy_tasks(tmp_path_factory.mktemp("tasks"), "direction")
    with overlay.open(tasks.spec(tasks.tasks[0])) as opened:
        yield opened


def prober(sandbox: Sandbox, cache: MemoryCache | None = None) -> Prober:
    return Prober(lambda: sandbox, "toy", ("calc.py",), cache=cache, test_cpu_s=0.3)


def lines(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("calc.py", n) for n in numbers)


def test_outcomes_lines_and_errors(sandbox: Sandbox) -> None:
    broken = CLEAN.replace("return total / len(values)", "return total / len(value)").encode()
    shown = prober(sandbox).run("w", {"/testbed/calc.py": broken}, TESTS).spectrum
    assert shown.failing == ("tests/test_calc.py::test_mean", "tests/test_calc.py::test_mean_of_one")
    assert shown.verdicts["tests/test_calc.py::test_mean"] == Verdict(
        "failed", "TypeError", (("calc.py", 19),), lines(15, 16, 17, 18, 19)
    )
    assert shown.verdicts["tests/test_calc.py::test_first_of_none"] == Verdict("passed", lines=lines(22, 23, 25))
    assert shown.imported == lines(1, 3, 6, 15, 22, 28)


KEPT = """
def numbers():
    n = 0
    while n < 9:
        yield n
        n += 1


KEPT = numbers()
"""


def test_each_test_has_its_own_lines_of_what_lives_on_between_tests(sandbox: Sandbox) -> None:
    tests = ("tests/test_kept.py::test_one", "tests/test_kept.py::test_two", "tests/test_kept.py::test_three")
    text = "".join(f"def {test.partition('::')[2]}():\n    assert next(KEPT) + 1\n\n\n" for test in tests)
    files = {
        "/testbed/calc.py": KEPT.encode(),
        "/testbed/tests/test_kept.py": f"from calc import KEPT\n{text}".encode(),
    }
    verdicts = prober(sandbox).run("kept", files, tests).spectrum.verdicts
    assert [verdicts[test].lines for test in tests] == [lines(2, 3, 4, 5), lines(4, 5, 6), lines(4, 5, 6)]


def test_a_run_leaves_nothing_in_the_sandbox(sandbox: Sandbox) -> None:
    runs = prober(sandbox)
    first = runs.run("a", {"/testbed/calc.py": b"x = 1\n", "/testbed/conftest.py": b"y = 1\n"}, TESTS[:1])
    assert first.spectrum.verdicts[TESTS[0]].result == "missing"
    assert runs.run("b", {"/testbed/calc.py": CLEAN.encode()}, TESTS).spectrum.failing == ()


def test_tests_that_never_end_or_end_the_process(sandbox: Sandbox) -> None:
    forever = CLEAN.replace("    total = 0\n", "    while True: pass\n").encode()
    shown = prober(sandbox).run("w", {"/testbed/calc.py": forever}, TESTS).spectrum
    assert shown.verdicts[TESTS[3]].error == "OutOfTime"
    assert len(shown.failing) == 2
    gone = CLEAN.replace("    total = 0\n", "    import os; os._exit(0)\n").encode()
    assert len(prober(sandbox).run("v", {"/testbed/calc.py": gone}, TESTS).spectrum.failing) == len(TESTS)


def test_each_run_is_paid_once(sandbox: Sandbox) -> None:
    cache = MemoryCache()
    first = prober(sandbox, cache)
    a = first.run("w", {}, TESTS)
    assert (a.spent.executed, cache.counts["record"]) == (True, 1)
    assert not first.run("w", {}, TESTS).spent.executed
    again = prober(sandbox, cache).run("w", {}, TESTS)
    assert (again.spent.executed, again.spent.seconds) == (False, a.spent.seconds)
    assert again.spectrum == a.spectrum
    assert prober(sandbox, cache).run("w", {}, TESTS[:2]).spent.executed
    assert prober(sandbox, cache).run("other", {}, TESTS).spent.executed


def test_spectra_are_stored_exactly() -> None:
    spectrum = Spectrum(
        {"b": Verdict("failed", "E", (("m", 1), ("ü", 2)), lines(3, 1)), "a": Verdict("missing")}, lines(7)
    )
    assert decode_spectrum(encode_spectrum(spectrum)) == spectrum
    turned = Spectrum(dict(reversed(spectrum.verdicts.items())), spectrum.imported)
    assert encode_spectrum(turned) == encode_spectrum(spectrum)
