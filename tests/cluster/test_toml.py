"""What is written as TOML is read back as it was."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refork.cluster.toml import dumps

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SCALARS = st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner))


def test_tables_and_lists() -> None:
    data = {"name": "a", "n": 3, "env": {"id": "x/y", "train": [], "options": {"a b": [1, {"c": True}]}}}
    assert (
        dumps(data) == 'name = "a"\nn = 3\n\n[env]\nid = "x/y"\ntrain = []\n\n[env.options]\n"a b" = [1, {c = true}]\n'
    )


def test_none_is_left_out() -> None:
    assert dumps({"a": None, "b": {"c": None}}) == "\n"


@given(st.dictionaries(TEXT, VALUES, max_size=4))
def test_reading_gives_back_what_was_written(data: dict) -> None:
    assert tomllib.loads(dumps(data)) == data


def test_what_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="TOML cannot hold b'x'"):
        dumps({"a": b"x"})
