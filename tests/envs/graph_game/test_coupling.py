"""Couplings: biregular ones, and rewiring at an equal number of pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refork.envs.graph_game.coupling import biregular, coupling_stats, rewire, sort_pairs


@pytest.mark.parametrize(("sites", "nodes", "degree"), [(10, 10, 3), (7, 7, 7), (12, 5, 4), (5, 12, 2), (1, 1, 1)])
def test_biregular(sites: int, nodes: int, degree: int) -> None:
    pairs = biregular(sites, nodes, degree, np.random.default_rng(0))
    assert np.bincount(pairs[:, 0], minlength=sites).tolist() == [degree] * sites
    by_node = np.bincount(pairs[:, 1], minlength=nodes)
    assert by_node.max() - by_node.min() <= (0 if sites == nodes else 1)
    assert len({tuple(p) for p in pairs.tolist()}) == sites * degree
    assert pairs.tolist() == sorted(pairs.tolist())
    if sites == nodes:
        assert coupling_stats(pairs, sites, nodes).degree_cv == 0.0


@pytest.mark.parametrize("degree", [0, 6])
def test_a_degree_that_cannot_be_is_refused(degree: int) -> None:
    with pytest.raises(ValueError, match=f"degree {degree}: must be 1 to the number of nodes, 5"):
        biregular(5, 5, degree, np.random.default_rng(0))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(3, 30), fraction=st.floats(0, 1), exponent=st.floats(0, 3))
def test_rewiring_keeps_the_number_of_pairs_and_every_site(
    seed: int, size: int, fraction: float, exponent: float
) -> None:
    rng = np.random.default_rng(seed)
    pairs = rewire(biregular(size, size, 3, rng), size, size, fraction, rng, exponent)
    assert len(pairs) == 3 * size
    assert len(np.unique(pairs, axis=0)) == 3 * size
    assert np.bincount(pairs[:, 0], minlength=size).min() >= 1
    assert pairs.min() >= 0
    assert pairs.max() < size
    assert (sort_pairs(pairs) == pairs).all()


def test_rewiring_nothing_changes_nothing_and_more_is_more_irregular() -> None:
    def mean_cv(fraction: float) -> float:
        cvs = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            pairs = biregular(80, 80, 3, rng)
            rewired = rewire(pairs, 80, 80, fraction, rng)
            assert (fraction > 0) or (rewired == pairs).all()
            cvs.append(coupling_stats(rewired, 80, 80).degree_cv)
        return float(np.mean(cvs))

    cvs = [mean_cv(fraction) for fraction in (0.0, 0.25, 0.5, 1.0)]
    assert cvs[0] == 0.0
    assert cvs == sorted(cvs)
    assert cvs[-1] > 1.0


def test_stats_by_hand() -> None:
    stats = coupling_stats(np.array([[0, 0], [1, 0], [1, 1], [2, 0], [3, 2]]), 4, 4)
    assert stats.degree_cv == pytest.approx(np.std([3, 1, 1, 0]) / 1.25)
    assert stats.single_sites == 0.75
