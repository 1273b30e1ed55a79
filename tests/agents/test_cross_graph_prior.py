"""The prior of the masked view: the policy begins at the decentralised greedy, and only that view may have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_policy import CrossGraphPolicy
from refork.envs.graph_game.game import Game
from refork.envs.graph_game.generate import make_instance
from refork.envs.graph_game.heuristics import HEURISTICS
from refork.envs.graph_game.observe import COUPLED, NODE_FEATURES, SITE_FEATURES

NAMES = (SITE_FEATURES, NODE_FEATURES)


def games() -> Game:
    return Game([make_instance(f"hydrogen-irregular-n{n}-{n}") for n in (8, 12)])


def test_with_a_strong_prior_it_plays_as_the_decentralised_greedy() -> None:
    torch.manual_seed(0)
    policy, rule = CrossGraphPolicy(CrossGraph(NAMES, prior=30.0).acting_weights()), HEURISTICS["one_hop_greedy"](0)
    game = games()
    while not game.ended:
        seen = game.observe()
        log_probs = policy.log_probs(seen.site, seen.node, game.topology, seen.masks)
        moves = np.stack([own.argmax(1) for own in log_probs], 1)
        assert moves.tolist() == rule.moves(game).tolist()
        game.step(moves)


@pytest.mark.parametrize("view", ["own", "masked", "unmasked"])
def test_without_it_what_only_the_coupling_tells_is_not_looked_at(view: str) -> None:
    torch.manual_seed(0)
    policy, game = CrossGraphPolicy(CrossGraph(NAMES, view=view).acting_weights()), games()  # type: ignore[arg-type]
    seen = game.observe()
    found = policy.log_probs(seen.site, seen.node, game.topology, seen.masks)
    for features in (seen.site, seen.node):
        features[..., -len(COUPLED) :] = 7.0
    again = policy.log_probs(seen.site, seen.node, game.topology, seen.masks)
    assert all((a == b).all() for a, b in zip(found, again, strict=True))


def test_nobody_is_told_of_what_is_two_steps_away() -> None:
    torch.manual_seed(0)
    network, game = CrossGraph(NAMES, prior=2.0), games()
    policy, seen = CrossGraphPolicy(network.acting_weights()), game.observe()
    found = policy.log_probs(seen.site, seen.node, game.topology, seen.masks)[0]
    seen.node[..., -len(COUPLED) :] = 7.0
    assert (policy.log_probs(seen.site, seen.node, game.topology, seen.masks)[0] == found).all()


def test_the_prior_is_learned_on() -> None:
    network = CrossGraph(NAMES, prior=2.0)
    assert [float(p.prior) for p in network.policies] == [2.0, 2.0]  # type: ignore[arg-type]
    assert all(p.prior.requires_grad for p in network.policies)  # type: ignore[union-attr]


@pytest.mark.parametrize(("view", "prior"), [("own", 1.0), ("unmasked", 1.0), ("masked", -1.0)])
def test_a_prior_elsewhere_is_refused(view: str, prior: float) -> None:
    with pytest.raises(ValueError, match="prior"):
        CrossGraph(NAMES, view=view, prior=prior)  # type: ignore[arg-type]
