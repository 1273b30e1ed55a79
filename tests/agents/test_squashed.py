"""Squashed Gaussians: a density that integrates to one, and an export that acts as the network does."""

import numpy as np
import pytest
import torch
from refork.agents.log_policy import LogPolicy
from refork.agents.q_networks import LogNetworks
from refork.agents.squashed import SquashedGaussian, log_density, sample

from tests.trainers.logs import DIMENSIONS, log_for, shape_of


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.5)])
def test_the_density_integrates_to_one(mean: float, log_std: float) -> None:
    edges = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    middles = (edges[1:] + edges[:-1])[:, None] / 2
    made = torch.full_like(middles, mean), torch.full_like(middles, log_std)
    assert float((log_density(*made, middles).exp() * 1e-5).sum()) == pytest.approx(1.0, abs=2e-3)


def test_a_sample_has_the_density_of_what_it_is() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = (0.5 * torch.randn(2, 5, 3, dtype=torch.float64) for _ in range(3))
    actions, density = sample(mean, log_std, noise)
    assert density == pytest.approx(log_density(mean, log_std, actions), abs=1e-6)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 8)])
def test_what_is_exported_acts_by_the_mean(hidden: tuple[int, ...]) -> None:
    log = log_for("continuous")
    networks = LogNetworks(shape_of(log), hidden, seed=0)
    policy = SquashedGaussian(networks.head(2 * DIMENSIONS, 2), DIMENSIONS)
    rows = np.asarray(log.observations[:7])
    mean, _ = policy(torch.from_numpy(rows).expand(2, -1, -1))
    for seed in range(2):
        acted = LogPolicy(log.spec, policy.acting_arrays("action"), 2).member(seed)(rows)[:, 0]
        unit = np.tanh(mean[seed].detach().numpy())
        assert acted == pytest.approx((unit + 1) / 2 * 2 + [-1, 0], abs=1e-5)
