"""Drawing from rows of a table: exactly the inverse of its cumulative probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refork.envs.clinical.row_sampler import RowSampler

weights = arrays(np.float64, (4, 6), elements=st.sampled_from([0.0, 0.0, 0.25, 1.0, 3.0]))


@given(weights, st.integers(0, 2**32 - 1))
def test_it_is_the_inverse_of_the_cumulative_probabilities(table: np.ndarray, seed: int) -> None:
    table[:, 2] += 0.5  # no empty row
    rng = np.random.default_rng(seed)
    rows, uniform = rng.integers(4, size=200), rng.random(200)
    drawn = RowSampler.of(table).draw(rows, uniform)
    cumulative = np.cumsum(table, -1) / table.sum(-1, keepdims=True)
    assert (drawn == (uniform[:, None] >= cumulative[rows]).sum(-1)).all()
    assert (table[rows, drawn] > 0).all()


def test_the_edges_stay_in_their_row() -> None:
    table = np.tile([0.0, 0.5, 0.0, 0.5, 0.0], (100_000, 1))
    sampler, rows = RowSampler.of(table), np.array([0, 99_999])
    assert sampler.draw(rows, np.zeros(2)).tolist() == [1, 1]
    assert sampler.draw(rows, np.full(2, np.nextafter(1.0, 0.0))).tolist() == [3, 3]
    assert sampler.draw(rows, np.full(2, 0.5)).tolist() == [3, 3]


def test_leading_axes_are_one_number() -> None:
    sampler = RowSampler.of(np.eye(6).reshape(2, 3, 6))
    assert sampler.draw(np.arange(6), np.full(6, 0.3)).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_row_without_a_probability_is_named() -> None:
    with pytest.raises(ValueError, match="row 1 of the table"):
        RowSampler.of(np.array([[0.5, 0.5], [0.0, 0.0]]))
