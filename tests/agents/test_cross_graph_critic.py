"""Critics: padding changes nothing, each sees what it should, moves of the partner are seen as far as the view goes."""

import numpy as np
import pytest
import torch
from refork.agents.cross_graph_critic import CounterfactualCritic, Critic, make_critic
from refork.agents.cross_graph_wiring import Wiring, wire
from refork.envs.topology import Topology
from torch import Tensor

from tests.agents.cross_graph_cases import Case, make_agent, make_case

SIZES = [(5, 4), (3, 6)]
KINDS = ("value", "central", "counterfactual")


def _inputs(case: Case) -> tuple[tuple[Tensor, Tensor], Wiring]:
    site, node = (torch.from_numpy(x).flatten(0, 1) for x in (case.site, case.node))
    return (site, node), wire(case.topology, 1, 2)


def _numbers(critic: Critic, case: Case, moves: list[list[int]]) -> list[Tensor]:
    """Per operator: V (B, 1), or Q of all moves (B, N + 1)."""
    features, wiring = _inputs(case)
    with torch.no_grad():
        if isinstance(critic, CounterfactualCritic):
            return list(critic(features, wiring, torch.tensor(moves)))
        return list(critic(features, wiring).split(1, 1))


def _critic(kind: str, view: str = "masked") -> Critic:
    critic = make_critic(kind, make_agent({"view": view}), 8, 4)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    return critic


@pytest.mark.parametrize("kind", KINDS)
def test_a_padded_batch_equals_each_game_alone(kind: str) -> None:
    critic, case = _critic(kind), make_case(SIZES, pad=(7, 8))
    together = _numbers(critic, case, [[1, 2], [7, 8]])  # the second game's operators pass
    for game, (n, m) in enumerate(SIZES):
        t = case.topology.take(np.array([game]))
        alone = Topology(t.site_mask[:, :n], t.node_mask[:, :m], t.pairs, t.roads, t.links)
        single = Case(alone, case.site[[game], :n], case.node[[game], :m], case.masks)
        found = _numbers(critic, single, [[1, 2], [n, m]][game : game + 1])
        for a, count in enumerate((n, m)):
            row = together[a][game]
            row = row if len(row) == 1 else torch.cat([row[:count], row[-1:]])
            assert row.numpy() == pytest.approx(found[a][0].numpy(), abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "view", "seen"),
    [("value", "own", False), ("value", "masked", True), ("central", "own", True), ("central", "masked", True)],
)
def test_the_central_critic_sees_both_graphs_whatever_the_policies_see(kind: str, view: str, seen: bool) -> None:
    critic, case = _critic(kind, view), make_case([(5, 4)])
    before = _numbers(critic, case, [[0, 0]])[0]
    case.node[0, case.topology.pairs[1, 0]] += 3.0
    assert (abs(float(_numbers(critic, case, [[0, 0]])[0] - before)) > 1e-6) == seen


def test_the_central_critic_sees_even_an_uncoupled_node() -> None:
    case = make_case([(5, 4)])
    pairs = case.topology.pairs[:, case.topology.pairs[1] != 0]
    t = case.topology
    case = Case(Topology(t.site_mask, t.node_mask, pairs, t.roads, t.links), case.site, case.node, case.masks)
    changes = {}
    for kind in ("value", "central"):
        critic = _critic(kind)
        before = _numbers(critic, case, [[0, 0]])[0]
        case.node[0, 0] += 3.0
        changes[kind] = abs(float(_numbers(critic, case, [[0, 0]])[0] - before))
        case.node[0, 0] -= 3.0
    assert changes["value"] == 0.0
    assert changes["central"] > 1e-6


def test_q_moves_with_the_partners_move_and_not_with_ones_own() -> None:
    critic, case = _critic("counterfactual"), make_case([(5, 4)])
    node = int(case.topology.pairs[1, 0])
    base = _numbers(critic, case, [[0, 4]])
    raised = _numbers(critic, case, [[0, node]])
    own = _numbers(critic, case, [[3, 4]])
    assert base[0].shape == (1, 6)
    assert base[1].shape == (1, 5)
    assert not raised[0].equal(base[0])
    assert raised[1].equal(base[1])
    assert own[0].equal(base[0])
    assert not own[1].equal(base[1])


def test_in_the_own_view_q_knows_nothing_of_the_partner() -> None:
    critic, case = _critic("counterfactual", "own"), make_case([(5, 4)])
    base, raised = (_numbers(critic, case, [[0, move]]) for move in (4, 1))
    assert raised[0].equal(base[0])


def test_a_width_that_the_heads_do_not_divide_is_named() -> None:
    with pytest.raises(ValueError, match="width 9 must be a positive multiple of heads 2"):
        make_critic("value", make_agent(), 9, 0)
