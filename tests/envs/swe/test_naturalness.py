"""The trigram model against values worked out by hand, and against common sense."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from refork.envs.swe import naturalness
from refork.envs.swe.naturalness import FLOOR, Change, LeftOut, Trigrams, gains, leave_out, token_id, tokens


def test_tokens() -> None:
    assert tokens("if a<=-1.5e3:  # no\n\n    x = f'a\"' + ''\n") == [
        *("if", "a", "<=", "-", "1.5e3", ":", "\n", "x", "=", "S", "+", "''", "\n")
    ]
    assert tokens("'''doc\nstring''' \"un") == ["S", '"', "un"]


def test_token_ids_are_the_same_everywhere() -> None:
    assert token_id("a") == 3405396810240292928


def log_p(model: Trigrams, *words: str, left_out: LeftOut = naturalness.NOTHING) -> float:
    a, b, c = (0 if word == "" else token_id(word) for word in words)
    return float(model.log_probabilities([(a, b, c)], [left_out])[0])


def test_probabilities_by_witten_and_bell() -> None:
    model = Trigrams.of(["a b a b c"])
    one = (2 + 3 * FLOOR) / (5 + 3)  # b: 2 of 5 tokens, 3 different ones
    two = (2 + 1 * one) / (2 + 1)  # always after a
    three = (1 + 1 * two) / (1 + 1)  # once after b a
    assert log_p(model, "b", "a", "b") == pytest.approx(math.log(three))
    assert log_p(model, "x", "a", "b") == pytest.approx(math.log(two))
    assert log_p(model, "x", "x", "b") == pytest.approx(math.log(one))
    assert log_p(model, "x", "x", "new") == pytest.approx(math.log(3 * FLOOR / 8))


def test_what_is_left_out_counts_once_less() -> None:
    model = Trigrams.of(["a b a b c"])
    ids = [token_id(word) for word in ["a", "b", "c"]]
    one = (1 - 1 + 3 * FLOOR) / (5 + 3)
    two = (1 - 1 + 2 * one) / (2 - 1 + 2)  # after b: a and c
    three = (1 - 1 + 2 * two) / (2 - 1 + 2)
    assert log_p(model, "a", "b", "c", left_out=leave_out(ids)) == pytest.approx(math.log(three))


def test_a_change_is_what_differs_and_the_two_tokens_after() -> None:
    before, after = Change.of("x = a + b * c * d\n", "x = a - b * c * d\n").grams()
    word = token_id
    assert before == [
        (word("="), word("a"), word("+")),
        (word("a"), word("+"), word("b")),
        (word("+"), word("b"), word("*")),
    ]
    assert [gram[2] for gram in after] == [word("-"), word("b"), word("*")]
    assert Change.of("a\n", "a\n").grams() == ([], [])


def test_gains_add_up_per_change() -> None:
    model = Trigrams.of(["a b a b c"])
    found = gains(model, [Change.of("a b", "a b"), Change.of("a c", "a b"), Change.of("a b", "a c")], without_old=False)
    step = log_p(model, "", "a", "b") - log_p(model, "", "a", "c")
    assert found == pytest.approx([0.0, step, -step])
    assert gains(model, [], without_old=True).shape == (0,)


def test_the_library_finds_bugs_unnatural(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    naturalness.library_model.cache_clear()
    model = naturalness.library_model()
    pairs = [
        ("args = self.args and ()", "args = self.args or ()"),
        ("if x is not None: raise TypeError", "if x is None: raise TypeError"),
        ("return not isinstance(x, str) or not", "return not isinstance(x, str) and not"),
        ("for i in range(len(x) + 2):", "for i in range(len(x) - 1):"),
    ]
    found = gains(model, [Change.of(*pair) for pair in pairs], without_old=False)
    assert (found[[0, 1, 3]] > 0).all()
    naturalness.library_model.cache_clear()
    again = naturalness.library_model()
    assert again is not model
    for order, same in zip(model.orders, again.orders, strict=True):
        assert np.array_equal(order.keys, same.keys)
        assert np.array_equal(order.totals, same.totals)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]
    naturalness.library_model.cache_clear()
