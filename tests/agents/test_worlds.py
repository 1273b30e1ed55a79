"""Worlds with a hidden confounder: priors, likelihoods and what they are made of."""

import math

import numpy as np
import pytest
import torch
from refork.agents.latents import Latent, LatentHead
from refork.agents.q_networks import LogNetworks, LogShape
from refork.agents.worlds import Seen, Worlds
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

LATENTS = [Latent("classes", 1), Latent("classes", 3), Latent("normal", 3)]


def _factory(kind: str = "vector", features: np.ndarray | None = None) -> LogNetworks:
    spec = LogSpec("", ObservationSpec(kind, 4), ActionSpec("discrete", (3,)), "units")  # type: ignore[arg-type]
    size = 4 if kind == "vector" else 0 if features is None else features.shape[1]
    return LogNetworks(LogShape(spec, np.zeros(size, np.float32), np.ones(size, np.float32), features), (8,), seed=0)


def _worlds(factory: LogNetworks, seeds: int = 1) -> Worlds:
    return Worlds(factory, LATENTS, (8,), seeds=seeds, bootstraps=2)


def _seen(members: int, batch: int = 5, kind: str = "vector", width: int = 4) -> Seen:
    draw = torch.Generator().manual_seed(0)
    observations = torch.randn(1, batch, 4, generator=draw) if kind == "vector" else torch.arange(batch)[None] % 4
    actions = torch.randint(3, (1, batch), generator=draw)
    states = None if kind == "vector" or width else (torch.arange(batch)[None] + 1) % 4
    parts = (observations, actions, torch.randn(1, batch, width + 1, generator=draw))
    first, second, third = (p.expand(members, *p.shape[1:]) for p in parts)
    ended = (torch.arange(batch) == batch - 1).expand(members, -1)
    return Seen(first, second, third, None if states is None else states.expand(members, -1), ended)


@pytest.mark.parametrize(("text", "latent"), [("classes-1", Latent("classes", 1)), ("normal-12", Latent("normal", 12))])
def test_worlds_are_named(text: str, latent: Latent) -> None:
    assert Latent.of(text) == latent


@pytest.mark.parametrize("text", ["classes", "classes-0", "normal--1", "gauss-2"])
def test_a_wrong_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="classes-K"):
        Latent.of(text)


def test_priors_are_even_classes_and_a_standard_normal() -> None:
    worlds = _worlds(_factory())
    chances = worlds.log_prior().detach().exp()
    assert chances[0].tolist() == [1.0, 0.0, 0.0]
    assert chances[1].tolist() == pytest.approx([1 / 3] * 3)
    at = worlds.nodes[2, :, -1]
    moments = [float((chances[2] * at**k).sum()) for k in range(5)]
    assert moments == pytest.approx([1, 0, 1, 0, 3], abs=1e-5)


def test_a_prior_is_learnt_for_classes_alone() -> None:
    worlds = _worlds(_factory())
    with torch.no_grad():
        worlds.prior_shift += torch.tensor([2.0, 0.0, 0.0])
    chances = worlds.log_prior().exp()
    assert chances[1, 0].item() == pytest.approx(math.e**2 / (math.e**2 + 2))
    assert chances[2].tolist() == pytest.approx([1 / 6, 2 / 3, 1 / 6])
    worlds.log_prior()[1, 0].backward()
    assert worlds.prior_shift.grad is not None
    assert torch.isfinite(worlds.prior_shift.grad).all()


def test_what_is_not_a_node_is_never_met_in_a_state() -> None:
    worlds = _worlds(_factory())
    found = worlds.log_given_state(torch.randn(3, 6, 4)).exp()
    assert torch.allclose(found.sum(1), torch.ones(3, 6))
    assert (found[0, 1:] == 0).all()


def test_the_likelihood_is_of_action_and_outcome() -> None:
    """Against densities written out from the networks' answers."""
    worlds, seen = _worlds(_factory()), _seen(3)
    found = worlds.log_likelihood(seen)
    one_hot = torch.eye(3)[seen.actions]
    outcome = worlds.outcome(seen.observations, worlds.nodes, one_hot)
    k, m, b = 1, 2, 4  # the last transition ended its episode
    chance = torch.softmax(worlds.behaviour(seen.observations, worlds.nodes)[k, m, b], -1)[seen.actions[k, b]]
    density = torch.distributions.Normal(outcome[k, m, b, :5], 1.0).log_prob(seen.following[k, b]).sum()
    ended = torch.sigmoid(outcome[k, m, b, 5])
    assert found.shape == (3, 3, 5)
    assert found[k, m, b].item() == pytest.approx((chance.log() + density + ended.log()).item(), rel=1e-5)


def test_the_state_that_followed_counts_where_states_have_no_features() -> None:
    worlds = _worlds(_factory("states"))
    seen = _seen(3, kind="states", width=0)
    outcome = worlds.outcome(seen.observations, worlds.nodes, torch.eye(3)[seen.actions])
    assert outcome.shape[-1] == 1 + 1 + 4
    assert seen.states is not None
    other = Seen(**{**vars(seen), "states": (seen.states + 1) % 4})
    following = torch.log_softmax(outcome[..., 2:], -1)
    rest = []
    for each in (seen, other):
        assert each.states is not None
        index = each.states[:, None, :, None].expand(-1, 3, -1, 1)
        rest.append(worlds.log_likelihood(each) - following.gather(-1, index).squeeze(-1))
    assert torch.allclose(*rest, atol=1e-5)


def test_an_action_that_is_not_allowed_is_not_taken() -> None:
    worlds = _worlds(_factory())
    allowed = torch.tensor([True, False, True]).expand(3, 2, 3)
    chances = worlds.log_behaviour(torch.randn(3, 2, 4), allowed).exp()
    assert (chances[..., 1] == 0).all()
    assert torch.allclose(chances.sum(-1), torch.ones(3, 3, 2))


def test_a_latent_head_is_a_network_of_observation_and_node_joined() -> None:
    head = LatentHead(_factory(), 2, 3, (8,), seeds=1, copies=1, purpose=0)
    observations, nodes = torch.randn(1, 5, 4), torch.randn(1, 2, 3)
    assert head.first.first is not None
    weight = torch.cat([head.first.first.weights[0], head.node.weights[0]], 1)[0]
    bias = (head.first.first.biases[0] + head.node.biases[0])[0]
    joined = torch.cat([observations[0], nodes[0, 1].expand(5, -1)], -1)
    hidden = torch.relu(joined @ weight + bias)
    assert torch.allclose(head(observations, nodes)[0, 1], head.rest(hidden[None])[0], atol=1e-5)


def test_a_seed_s_worlds_do_not_depend_on_what_is_stacked_beside_them() -> None:
    alone, stacked = _worlds(_factory()), _worlds(_factory(), seeds=3)
    for name, parameter in alone.named_parameters():
        assert torch.equal(parameter, dict(stacked.named_parameters())[name][: len(parameter)])
