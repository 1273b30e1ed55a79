"""Fits worlds to a log: first how it came about, then what actions are worth in each world."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from refork.agents.worlds import Worlds
from refork.replay.seeding import generator
from refork.trainers.delphic.worlds import WorldFit
from torch import Tensor, nn

VALUE_BATCH = 256
"""Transitions a gradient step of the values."""
TARGET_RATE = 0.02
"""How far the target copy of the values moves a step."""


def fit_worlds(fit: WorldFit) -> None:
    """Behaviour, outcomes and prior by the evidence of the fitted episodes: an ELBO whose encoder is exact."""
    config, worlds = fit.config, fit.worlds
    length = int(min(config.world_window, fit.episodes.log.lengths.max()))
    windows = fit.episodes.windows(length)
    optimiser = torch.optim.Adam(_parameters(worlds, values=False), lr=config.world_learning_rate, fused=True)
    steps = max(1, config.world_epochs * len(windows) // config.world_batch)
    offsets = torch.arange(length)
    for step, chosen in enumerate(_draws(fit.seeds, "windows", len(windows), steps, config.world_batch)):
        first, sizes = torch.from_numpy(windows[chosen]).unbind(-1)  # (S, E)
        inside = offsets < sizes[..., None]
        numbers = (first[..., None] + offsets).where(inside, first[..., None])  # (S, E, T)
        seen = fit.episodes.seen(numbers.flatten(1), fit.count)
        found = worlds.log_likelihood(seen).unflatten(-1, inside.shape[1:])  # (K, M, E, T)
        mask = inside.repeat_interleave(fit.count, 0)[:, None]
        joint = (found * mask).sum(-1) + worlds.log_prior()[..., None]
        evidence = torch.logsumexp(joint, 1).sum(-1) / mask.sum((1, 2, 3))
        _step(optimiser, -evidence.sum(), config.world_learning_rate, step / steps)


def fit_values(fit: WorldFit) -> Tensor:
    """Values of resampled episodes, and p(z | s), given the worlds.

    Returns (S,): mean squared temporal difference in the last tenth of the steps, in squared units of the return.
    """
    config, worlds = fit.config, fit.worlds
    fitted = fit.episodes.fitted
    steps_of = fit.episodes.log.steps_of(fitted)
    encoded = torch.softmax(fit.joint(fitted)[0], 1)  # (K, M, E)
    weights = _bootstrap_weights(fit.seeds, config.bootstraps, len(fitted)).repeat_interleave(fit.count, 0)
    local = np.repeat(np.arange(len(fitted)), fit.episodes.log.lengths[fitted])
    target = copy.deepcopy(worlds.values).requires_grad_(False)
    optimiser = torch.optim.Adam(_parameters(worlds, values=True), lr=config.world_learning_rate, fused=True)
    steps = max(1, config.world_epochs * len(steps_of) // VALUE_BATCH)
    last: list[Tensor] = []
    for step, chosen in enumerate(_draws(fit.seeds, "values", len(steps_of), steps, VALUE_BATCH)):
        index = torch.from_numpy(local[chosen]).repeat_interleave(fit.count, 0)[:, None]  # (K, 1, B)
        posterior = encoded.gather(2, index.expand(-1, encoded.shape[1], -1))  # (K, M, B)
        drawn = weights.gather(2, index.expand(-1, config.bootstraps, -1)).flatten(0, 1)  # (K * b, B)
        errors, cross = _errors(fit, torch.from_numpy(steps_of[chosen]), posterior, drawn, target)
        _step(optimiser, errors.sum() + cross.sum(), config.world_learning_rate, step / steps)
        with torch.no_grad():
            for kept, now in zip(target.parameters(), worlds.values.parameters(), strict=True):
                kept.lerp_(now, TARGET_RATE)
        if step >= steps - max(1, steps // 10):
            last.append(errors.detach())
    mean = torch.stack(last).mean(0).unflatten(0, (len(fit.seeds), -1)).mean(1)
    return mean * fit.episodes.reward_scale**2


def _errors(
    fit: WorldFit, numbers: Tensor, posterior: Tensor, drawn: Tensor, target: nn.Module
) -> tuple[Tensor, Tensor]:
    """Squared temporal differences (K * b,) and cross entropy of p(z | s) (K,), means over the minibatch.

    The policy followed is each world's behaviour, which sees z: what happened, so no action is extrapolated to.
    """
    worlds = fit.worlds
    batch = fit.episodes.tensors.batch(numbers)
    here, there = (o.repeat_interleave(fit.count, 0) for o in (batch.observations, batch.next_observations))
    allowed = None if batch.next_allowed is None else batch.next_allowed[:, :, 0].repeat_interleave(fit.count, 0)
    nodes = worlds.by_bootstrap(worlds.nodes)
    with torch.no_grad():
        chances = worlds.by_bootstrap(worlds.log_behaviour(there, allowed).exp())
        following = (chances * target(worlds.by_bootstrap(there), nodes)).sum(-1)  # (K * b, M, B)
        rewards, discounts = (
            worlds.by_bootstrap(x.repeat_interleave(fit.count, 0))[:, None]
            for x in (batch.rewards / fit.episodes.reward_scale, batch.discounts)
        )
        wanted = rewards + discounts * following
    values = worlds.values(worlds.by_bootstrap(here), nodes)
    taken = worlds.by_bootstrap(batch.actions[..., 0].repeat_interleave(fit.count, 0))[:, None, :, None]
    found = values.gather(-1, taken.expand(-1, values.shape[1], -1, 1)).squeeze(-1)
    squares = (worlds.by_bootstrap(posterior) * (found - wanted).square()).sum(1)
    cross = -(posterior * worlds.log_given_state(here)).sum(1).mean(-1)
    return (squares * drawn).mean(-1), cross


def _draws(seeds: Sequence[int], purpose: str, count: int, steps: int, size: int) -> Iterator[np.ndarray]:
    """`steps` arrays (S, size) of numbers below `count`."""
    streams = [generator(seed, f"worlds/{purpose}") for seed in seeds]
    for _ in range(steps):
        yield np.stack([stream.integers(count, size=size) for stream in streams])


def _bootstrap_weights(seeds: Sequence[int], bootstraps: int, episodes: int) -> Tensor:
    """(S, b, E): how often each bootstrap drew each episode (Poisson, mean 1); the same in every world."""
    drawn = [generator(seed, "worlds/bootstrap").poisson(1.0, (bootstraps, episodes)) for seed in seeds]
    return torch.from_numpy(np.stack(drawn)).float()


def _parameters(worlds: Worlds, *, values: bool) -> list[nn.Parameter]:
    late = ("values.", "given_state.")
    return [p for name, p in worlds.named_parameters() if name.startswith(late) == values]


def _step(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float, progress: float) -> None:
    """One step of a rate that falls to 0 over the second half."""
    optimiser.param_groups[0]["lr"] = rate * min(1.0, 2 * (1 - progress))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
