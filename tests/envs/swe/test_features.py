"""Every number a row holds, on a small menu."""

from dataclasses import replace

import numpy as np
import pytest
from refork.envs.swe.baselines import NaturalGreedy, OchiaiGreedy
from refork.envs.swe.features import COLUMN, ERRORS, FEATURES, KINDS, Trial, Whole, error_shares, fill, static_rows
from refork.envs.swe.localise import Spectrum, Verdict
from refork.envs.swe.menu import build_menu
from refork.envs.swe.module_text import ModuleText

MODULES = {"m.py": ModuleText.of("m.py", "def f(a):\n    if a < 1:\n        return g(a, 2)\n")}
SPECTRUM = Spectrum(
    {
        "x": Verdict("failed", "KeyError", (("m.py", 3),), frozenset({("m.py", 2), ("m.py", 3)})),
        "y": Verdict("failed", "SomeError", (), frozenset({("m.py", 2)})),
        "z": Verdict("passed", lines=frozenset({("m.py", 2)})),
    }
)
ITEMS = build_menu(MODULES, SPECTRUM, 8)
ROWS = static_rows(ITEMS, SPECTRUM, 8)
WHOLE = Whole(
    tests=4, base_failing=2, failing=1, before=2, broken=0, pending=0, edits=2, steps_left=3, max_steps=12, tried=2
)


def cell(rows: np.ndarray, row: int, name: str) -> float:
    return float(rows[row, COLUMN[name]])


def test_shape_and_kinds() -> None:
    assert ROWS.shape == (12, len(FEATURES))
    assert ROWS.dtype == np.float32
    assert len(set(FEATURES)) == len(FEATURES)
    kinds = ROWS[:, [COLUMN[f"kind_{kind}"] for kind in KINDS]]
    assert kinds.argmax(1).tolist() == [0] * 8 + [1, 2, 3, 4]
    assert kinds.sum(1).tolist() == [1.0] * 12


def test_what_a_menu_fixes() -> None:
    places = {item.candidate.operator: i for i, item in reversed(list(enumerate(ITEMS)))}
    place = places["swapped_arguments"]
    assert ITEMS[place].line == ("m.py", 3)
    assert cell(ROWS, place, "score") == pytest.approx((1 / 2) ** 0.5)
    assert cell(ROWS, place, "share_failing") == 0.5
    assert cell(ROWS, place, "share_passing") == 0.0
    assert cell(ROWS, place, "raised_here") == 1.0
    assert cell(ROWS, place, "operator_swapped_arguments") == 1.0
    assert cell(ROWS, place, "depth") == 0.5
    assert cell(ROWS, place, "log_place") == pytest.approx(np.log1p(place) / 4)
    first = places["comparison"]
    assert (cell(ROWS, first, "share_failing"), cell(ROWS, first, "share_passing")) == (1.0, 1.0)
    assert cell(ROWS, first, "in_traceback") == 0.0
    natural = sorted(range(len(ITEMS)), key=lambda i: -ITEMS[i].natural)
    assert cell(ROWS, natural[0], "natural_place") == 0.0
    assert cell(ROWS, natural[0], "natural") == pytest.approx(np.clip(ITEMS[natural[0]].natural / 4, -3, 3), abs=1e-6)


def test_shares_of_exceptions() -> None:
    assert error_shares(SPECTRUM) == {name: {"Lookup": 0.5, "other": 0.5}.get(name, 0.0) for name in ERRORS}
    assert cell(ROWS, 11, "error_Lookup") == 0.5


def test_what_changes_from_step_to_step() -> None:
    rows = fill(ROWS, WHOLE, {1: Trial(gain=-0.5), 2: Trial(gain=1.0, gain_before=0.25)})
    assert [cell(rows, 7, name) for name in ("failing_left", "unrun", "edits", "steps_left", "few_left")] == [
        *(0.5, 0.0, 0.5, 0.25, 0.75)
    ]
    assert [cell(rows, 0, name) for name in ("clean", "improved", "not_improved", "neighbours_known")] == [0, 1, 0, 1]
    assert [cell(rows, 1, name) for name in ("tried", "gain", "no_gain", "solved")] == [1, -0.5, 1, 0]
    assert [cell(rows, 2, name) for name in ("tried", "solved", "tried_before", "gain_before")] == [1, 1, 1, 0.25]
    assert rows[3:, COLUMN["tried"]].sum() == 0
    assert ROWS[:, COLUMN["steps_left"]].sum() == 0  # the menu's own rows stay as they are


def prior(whole: Whole, trials: dict[int, Trial]) -> np.ndarray:
    return fill(ROWS, whole, trials)[:, COLUMN["prior"]]


def test_the_prior_is_a_softened_greedy() -> None:
    undo, run, _, submit = range(8, 12)
    assert prior(replace(WHOLE, failing=None), {}).argmax() == run
    assert prior(replace(WHOLE, failing=2), {}).argmax() == undo
    assert prior(replace(WHOLE, failing=0), {}).argmax() == submit
    assert prior(WHOLE, {}).argmax() == 0
    assert prior(WHOLE, {0: Trial(gain=0.0)}).argmax() == 1
    assert prior(replace(WHOLE, edits=0, before=None), {})[run] == -4


def test_greedy_baselines_differ_in_what_they_try_first() -> None:
    rows = fill(ROWS, replace(WHOLE, edits=0, before=None), {0: Trial(gain=0.0)})
    rows[: len(ITEMS), COLUMN["natural"]] = 0
    rows[4, COLUMN["natural"]] = 3
    observation = {"features": rows, "mask": np.arange(12) < len(ITEMS)}
    assert OchiaiGreedy().greedy(observation) == 1
    assert NaturalGreedy().greedy(observation) == 4
