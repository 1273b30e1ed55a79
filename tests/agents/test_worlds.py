"""Worlds with a hidden confounder: priors, likelihoods and what they are made of."""

import math

import numpy as np
import pytest
import torch
from refork.agents.latents import Latent, LatentHead
from refork.agents.q_networks import LogNetworks, LogShape
from refork.agents.world_outcomes import Outcomes
from refork.agents.worlds import Seen, Worlds
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

LATENTS = [Latent("classes", 1), Latent("classes", 3), Latent("normal", 3)]


def _factory(kind: str = "vector", features: np.ndarray | None = None) -> LogNetworks:
    spec = LogSpec("", ObservationSpec(kind, 4), ActionSpec("discrete", (3,)), "units")  # type: ignore[arg-type]
    size = 4 if kind == "vector" else 0 if features is None else features.shape[1]
    return LogNetworks(LogShape(spec, np.zeros(size, np.float32), np.ones(size, np.float32), features), (8,), seed=0)


def _worlds(factory: LogNetworks, seeds: int = 1) -> Worlds:
    return Worlds(factory, LATENTS, (8,), seeds=seeds, bootstraps=2)


def _seen(worlds: Worlds, kind: str = "vector", batch: int = 5) -> Seen:
    draw, members = torch.Generator().manual_seed(0), len(LATENTS)
    observations = (
        torch.randn(1, batch + 1, 4, generator=draw) if kind == "vector" else torch.arange(batch + 1)[None] % 4
    )
    actions = torch.randint(3, (1, batch), generator=draw)
    change = torch.randn(1, batch, len(worlds.outcomes.numbers), generator=draw)
    levels = worlds.outcomes.table[observations[:, 1:]] if worlds.outcomes.levels else actions[..., None][..., :0]
    ended = torch.arange(batch)[None] == batch - 1
    parts = (observations[:, :-1], actions, observations[:, 1:], change, levels, torch.randn(1, batch, generator=draw))
    return Seen(*(p.expand(members, *p.shape[1:]) for p in (*parts, ended)))  # type: ignore[arg-type]


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
    """Against densities written out from the networks' answers; the reward is told what followed."""
    worlds = _worlds(_factory())
    seen = _seen(worlds)
    found = worlds.log_likelihood(seen)
    one_hot = torch.eye(3)[seen.actions]
    change = worlds.following(seen.observations, worlds.nodes, one_hot)
    ending = worlds.ending(seen.observations, worlds.nodes, one_hot, worlds.arrival(seen.next_observations))
    k, m, b = 1, 2, 4  # the last transition ended its episode
    chance = torch.softmax(worlds.behaviour(seen.observations, worlds.nodes)[k, m, b], -1)[seen.actions[k, b]]
    density = torch.distributions.Normal(change[k, m, b], 1.0).log_prob(seen.change[k, b]).sum()
    density = density + torch.distributions.Normal(ending[k, m, b, 0], 1.0).log_prob(seen.rewards[k, b])
    assert found.shape == (3, 3, 5)
    whole = chance.log() + density + torch.sigmoid(ending[k, m, b, 1]).log()
    assert found[k, m, b].item() == pytest.approx(whole.item(), rel=1e-5)


FEATURES = np.array([[0, 1.5], [1, 2.5], [0, 2.5], [2, 1.5]], np.float32)


@pytest.mark.parametrize(("features", "levels"), [(None, (4,)), (FEATURES, (3, 2))])
def test_the_state_that_followed_counts_as_categories(features: np.ndarray | None, levels: tuple[int, ...]) -> None:
    worlds = _worlds(_factory("states", features))
    assert worlds.outcomes.levels == levels
    seen = _seen(worlds, "states")
    one_hot = torch.eye(3)[seen.actions]
    logits = worlds.following(seen.observations, worlds.nodes, one_hot).split(list(levels), -1)
    other = Seen(**{**vars(seen), "levels": (seen.levels + 1) % torch.tensor(levels)})
    rest = []
    for each in (seen, other):
        found = worlds.log_likelihood(each)
        for category, part in enumerate(logits):
            index = each.levels[:, None, :, category, None].expand(-1, 3, -1, 1)
            found = found - torch.log_softmax(part, -1).gather(-1, index).squeeze(-1)
        rest.append(found)
    assert torch.allclose(*rest, atol=1e-5)


def test_features_of_many_values_are_numbers() -> None:
    spec = LogSpec("", ObservationSpec("states", 20), ActionSpec("discrete", (3,)), "units")
    features = np.stack([np.arange(20) % 3, np.arange(20)], 1).astype(np.float32)
    found = Outcomes.of(LogShape(spec, np.zeros(2, np.float32), np.ones(2, np.float32), features))
    assert found.levels == (3,)
    assert found.numbers.tolist() == [1]
    assert found.table[:, 0].tolist() == [k % 3 for k in range(20)]


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
