"""The cross-graph network: sizes, padding and order change nothing; masks are safe; views see what they should."""

import numpy as np
import pytest
import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_body import VIEWS
from refork.agents.cross_graph_ops import masked_log_softmax
from refork.agents.cross_graph_policy import CrossGraphPolicy
from refork.agents.cross_graph_wiring import wire
from refork.agents.registry import make_network, make_policy
from refork.envs.topology import Topology

from tests.agents.cross_graph_cases import NODE_NAMES, SITE_NAMES, Case, make_agent, make_case

SIZES = [(5, 4), (3, 6), (1, 1), (6, 2)]


def _play(agent: CrossGraph, case: Case) -> tuple[np.ndarray, np.ndarray]:
    policy = make_policy("cross_graph", agent.acting_weights())
    return policy.log_probs(case.site, case.node, case.topology, case.masks)


def _single(case: Case, game: int, sizes: tuple[int, int]) -> Case:
    """One game of a batch without its padding."""
    n, m = sizes
    t = case.topology.take(np.array([game]))
    legal = [np.concatenate([x[[game], :c], x[[game], -1:]], 1) for x, c in zip(case.masks, sizes, strict=True)]
    topology = Topology(t.site_mask[:, :n], t.node_mask[:, :m], t.pairs, t.roads, t.links)
    return Case(topology, case.site[[game], :n], case.node[[game], :m], (legal[0], legal[1]))


@pytest.mark.parametrize("view", VIEWS)
def test_a_padded_batch_of_mixed_sizes_equals_each_game_alone(view: str) -> None:
    agent, case = make_agent({"view": view}), make_case(SIZES, pad=(9, 8))
    batch = _play(agent, case)
    for game, sizes in enumerate(SIZES):
        alone = _play(agent, _single(case, game, sizes))
        for a, count in enumerate(sizes):
            together = np.concatenate([batch[a][game, :count], batch[a][game, -1:]])
            assert together == pytest.approx(alone[a][0], abs=1e-6)
            assert np.isneginf(batch[a][game, count:-1]).all()
            assert np.exp(batch[a][game]).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
def test_what_stands_in_the_padding_changes_nothing(view: str, garbage: float) -> None:
    agent, case = make_agent({"view": view}), make_case(SIZES)
    clean = _play(agent, case)
    case.site[~case.topology.site_mask] = garbage
    case.node[~case.topology.node_mask] = garbage
    for before, after in zip(clean, _play(agent, case), strict=True):
        assert (before == after).all()


@pytest.mark.parametrize("view", VIEWS)
def test_renumbering_nodes_renumbers_the_policy(view: str) -> None:
    agent, case = make_agent({"view": view}), make_case([(6, 5)])
    rng = np.random.default_rng(3)
    p, q = rng.permutation(6), rng.permutation(5)  # new place of each node
    t = case.topology
    pairs = np.stack([p[t.pairs[0]], q[t.pairs[1]]])
    moved = Topology(t.site_mask, t.node_mask, pairs[:, np.lexsort(pairs[::-1])], p[t.roads], q[t.links])
    site, node = np.empty_like(case.site), np.empty_like(case.node)
    site[:, p], node[:, q] = case.site, case.node
    masks = [m.copy() for m in case.masks]
    masks[0][:, p], masks[1][:, q] = case.masks[0][:, :-1], case.masks[1][:, :-1]
    before, after = _play(agent, case), _play(agent, Case(moved, site, node, (masks[0], masks[1])))
    assert after[0][0, [*p, 6]] == pytest.approx(before[0][0], abs=1e-6)
    assert after[1][0, [*q, 5]] == pytest.approx(before[1][0], abs=1e-6)


def _embedding(agent: CrossGraph, case: Case) -> np.ndarray:
    """What the demand operator makes of each site, (B N, d)."""
    wiring = wire(case.topology, 1, agent.heads)
    features = [torch.from_numpy(x).flatten(0, 1) for x in (case.site, case.node)]
    return agent.policies[0].body(*features, wiring.sides[0]).detach().numpy()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_reads_the_partner_nodes_it_should(view: str) -> None:
    agent, case = make_agent({"view": view}), make_case([(6, 5)])
    before = _embedding(agent, case)
    case.node[0, 2] += 5.0
    changed = (np.abs(_embedding(agent, case) - before) > 1e-6).any(1)
    coupled = np.isin(np.arange(6), case.topology.pairs[0][case.topology.pairs[1] == 2])
    assert 0 < coupled.sum() < 6
    assert (changed == {"own": np.zeros(6, bool), "masked": coupled, "unmasked": np.ones(6, bool)}[view]).all()


def test_dense_attention_is_pair_attention_with_everything_coupled() -> None:
    case = make_case([(4, 3), (2, 3)])
    every = [(b * 4 + i, b * 3 + j) for b, n in enumerate((4, 2)) for i in range(n) for j in range(3)]
    full = Topology(
        case.topology.site_mask, case.topology.node_mask, np.array(every).T, case.topology.roads, case.topology.links
    )
    agent = make_agent({"view": "masked"})
    side = wire(full, 1, agent.heads).sides[0]
    attend = agent.policies[0].body.attend
    rng = torch.Generator().manual_seed(0)
    query, value, null = (torch.randn(r, c, generator=rng) for r, c in ((8, 32), (6, 32), (8, 2)))
    real = full.site_mask.reshape(-1)
    for sparse, dense in zip(
        attend._sparse(query, value, null, side), attend._dense(query, value, null, side), strict=True
    ):
        assert sparse.detach()[real].numpy() == pytest.approx(dense.detach()[real].numpy(), abs=1e-5)


def test_gradients_of_the_pair_sums_are_right() -> None:
    case = make_case([(4, 3), (2, 3)])
    agent = make_agent({"width": 4}).double()
    side = wire(case.topology, 2, agent.heads).sides[1]
    attend = agent.policies[1].body.attend
    rng = torch.Generator().manual_seed(0)
    query, value, null = (
        torch.randn(r, c, generator=rng, dtype=torch.float64, requires_grad=True)
        for r, c in ((12, 4), (16, 4), (12, 2))
    )
    assert torch.autograd.gradcheck(lambda q, v, n: attend._sparse(q, v, n, side), (query, value, null))


@pytest.mark.parametrize("operator", [0, 1])
def test_a_mask_without_a_move_is_an_error_never_a_uniform_draw(operator: int) -> None:
    agent, case = make_agent(), make_case(SIZES)
    case.masks[operator][2] = False
    with pytest.raises(ValueError, match=r"leaves no move in rows \[2\]"):
        _play(agent, case)


def test_masked_logits_get_no_gradient_and_no_nan() -> None:
    logits = torch.tensor([[1.0, torch.nan, 3.0], [torch.inf, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, True, True]])
    log_probs = masked_log_softmax(logits, mask)
    log_probs[mask].sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[~mask] == 0).all()
    assert log_probs[1].exp().tolist() == pytest.approx([0.0, 0.5, 0.5])


def test_several_rounds_are_rounds_of_the_same_games() -> None:
    agent, case = make_agent(), make_case(SIZES)
    rounds = [(case.site * k, case.node * k) for k in (1.0, 0.5, -1.0)]
    single = [_play(agent, Case(case.topology, s, n, case.masks)) for s, n in rounds]
    features = [torch.from_numpy(np.concatenate(x)).flatten(0, 1) for x in zip(*rounds, strict=True)]
    masks = [torch.from_numpy(np.tile(m, (3, 1))) for m in case.masks]
    together = agent((features[0], features[1]), wire(case.topology, 3, agent.heads), (masks[0], masks[1]))
    for a in range(2):
        expected = np.concatenate([found[a] for found in single])
        assert together[a].detach().numpy() == pytest.approx(expected, abs=1e-6)


def test_untrained_it_starts_near_uniform_over_what_is_legal() -> None:
    case = make_case(SIZES)
    found = _play(make_agent(spread=0.0), case)
    for a in range(2):
        uniform = case.masks[a] / case.masks[a].sum(1, keepdims=True)
        assert np.exp(found[a]) == pytest.approx(uniform, abs=0.02)


def test_a_large_sparse_game_makes_nothing_the_size_of_all_pairs() -> None:
    """1,000 x 1,000 with 20 rounds: an N x M tensor of floats would be 80 MB."""
    agent, case = make_agent(), make_case([(1000, 1000)], degree=3)
    features = [torch.from_numpy(x).flatten(0, 1).repeat(20, 1) for x in (case.site, case.node)]
    masks = [torch.from_numpy(m).repeat(20, 1) for m in case.masks]
    largest = 0
    wiring = wire(case.topology, 20, agent.heads)

    def note(saved: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        largest = max(largest, saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        demand, supply = agent((features[0], features[1]), wiring, (masks[0], masks[1]))
    (demand[:, -1].sum() + supply[:, -1].sum()).backward()
    assert 20_000 * 32 <= largest <= 20_000 * 33  # one embedding per node and round


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": "half"}, "view 'half'; there are: own, masked, unmasked"),
        ({"width": 10, "heads": 4}, "width 10 must be a positive multiple of heads 4"),
        ({"hidden": 3}, r"\[agent.options\] of cross_graph: .*'hidden'"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_network("cross_graph", (SITE_NAMES, NODE_NAMES), options, 0)


def test_weights_come_from_the_seed_alone_and_acting_leaves_generators_as_they_were() -> None:
    before = torch.get_rng_state()
    first = make_network("cross_graph", (SITE_NAMES, NODE_NAMES), {}, 5).acting_weights()
    CrossGraphPolicy(first)
    assert (torch.get_rng_state() == before).all()
    torch.manual_seed(8)
    second = make_network("cross_graph", (SITE_NAMES, NODE_NAMES), {}, 5).acting_weights()
    assert all((first[k] == second[k]).all() for k in first)
