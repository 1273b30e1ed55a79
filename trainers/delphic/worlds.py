"""Fits worlds to a log: first how it came about, then what actions are worth in each world."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from refork.agents.worlds import Worlds
from refork.replay.seeding import generator
from refork.trainers.delphic.config import AlgorithmConfig
from refork.trainers.delphic.episodes import Episodes
from refork.trainers.delphic.gate import Fit, episode_log_likelihood, excess_variation
from refork.trainers.delphic.uncertainty import adjustment_weights
from torch import Tensor

CHUNK = 4096
"""Transitions at a time where all of the log is passed over."""
VALUE_BATCH = 256
"""Transitions a gradient step of the values."""
TARGET_RATE = 0.02
"""How far the target copy of the values moves a step."""


class WorldFit:
    """Worlds of S seeds and the episodes they are fitted to."""

    def __init__(self, worlds: Worlds, episodes: Episodes, config: AlgorithmConfig, seeds: Sequence[int]) -> None:
        self.worlds, self.episodes, self.config, self.seeds = worlds, episodes, config, seeds
        self.count = len(config.worlds)

    def fit(self) -> Tensor:
        """Fits the worlds by their evidence (an ELBO whose encoder is exact), then their values.

        Returns (S,): mean squared temporal difference of the values in the last tenth of the steps, in squared units
        of the return.
        """
        self._fit_worlds()
        return self._fit_values()

    def _fit_worlds(self) -> None:
        config, worlds = self.config, self.worlds
        length = int(min(config.world_window, self.episodes.log.lengths.max()))
        windows = self.episodes.windows(length)
        optimiser = torch.optim.Adam(_parameters(worlds, values=False), lr=config.world_learning_rate, fused=True)
        steps = max(1, config.world_epochs * len(windows) // config.world_batch)
        offsets = torch.arange(length)
        for step, chosen in enumerate(self._draws("windows", len(windows), steps, config.world_batch)):
            first, sizes = torch.from_numpy(windows[chosen]).unbind(-1)  # (S, E)
            inside = offsets < sizes[..., None]
            numbers = (first[..., None] + offsets).where(inside, first[..., None])  # (S, E, T)
            seen = self.episodes.seen(numbers.flatten(1), self.count)
            found = worlds.log_likelihood(seen).unflatten(-1, inside.shape[1:])  # (K, M, E, T)
            mask = inside.repeat_interleave(self.count, 0)[:, None]
            joint = (found * mask).sum(-1) + worlds.log_prior()[..., None]
            evidence = torch.logsumexp(joint, 1).sum(-1) / mask.sum((1, 2, 3))
            _step(optimiser, -evidence.sum(), config.world_learning_rate, step / steps)

    def _fit_values(self) -> Tensor:
        config, worlds = self.config, self.worlds
        steps_of = self.episodes.log.steps_of(self.episodes.fitted)
        encoded = torch.softmax(self._joint(self.episodes.fitted)[0], 1)  # (K, M, E)
        weights = self._bootstrap_weights(len(self.episodes.fitted))
        local = np.repeat(np.arange(len(self.episodes.fitted)), self.episodes.log.lengths[self.episodes.fitted])
        target = copy.deepcopy(worlds.values).requires_grad_(False)
        optimiser = torch.optim.Adam(_parameters(worlds, values=True), lr=config.world_learning_rate, fused=True)
        steps = max(1, config.world_epochs * len(steps_of) // VALUE_BATCH)
        last: list[Tensor] = []
        for step, chosen in enumerate(self._draws("values", len(steps_of), steps, VALUE_BATCH)):
            of_episode = torch.from_numpy(local[chosen]).repeat_interleave(self.count, 0)  # (K, B)
            index = of_episode[:, None].expand(-1, encoded.shape[1], -1)
            posterior = encoded.gather(2, index)  # (K, M, B)
            drawn = weights.repeat_interleave(self.count, 0).gather(2, index[:, :1].expand(-1, config.bootstraps, -1))
            numbers = torch.from_numpy(steps_of[chosen])
            errors, cross = self._value_errors(numbers, posterior, drawn.flatten(0, 1), target)
            _step(optimiser, errors.sum() + cross.sum(), config.world_learning_rate, step / steps)
            with torch.no_grad():
                for kept, now in zip(target.parameters(), worlds.values.parameters(), strict=True):
                    kept.lerp_(now, TARGET_RATE)
            if step >= steps - max(1, steps // 10):
                last.append(errors.detach())
        mean = torch.stack(last).mean(0).unflatten(0, (len(self.seeds), -1)).mean(1)
        return mean * self.episodes.reward_scale**2

    def _value_errors(
        self, numbers: Tensor, posterior: Tensor, drawn: Tensor, target: torch.nn.Module
    ) -> tuple[Tensor, Tensor]:
        """Squared temporal differences (K * b,) and cross entropy of p(z | s) (K,), means over the minibatch.

        The policy followed is each world's behaviour, which sees z: what happened, so no action is extrapolated to.
        """
        worlds = self.worlds
        batch = self.episodes.tensors.batch(numbers)
        here, there = (o.repeat_interleave(self.count, 0) for o in (batch.observations, batch.next_observations))
        allowed = None if batch.next_allowed is None else batch.next_allowed[:, :, 0].repeat_interleave(self.count, 0)
        nodes = worlds.by_bootstrap(worlds.nodes)
        with torch.no_grad():
            chances = worlds.by_bootstrap(worlds.log_behaviour(there, allowed).exp())
            following = (chances * target(worlds.by_bootstrap(there), nodes)).sum(-1)  # (K * b, M, B)
            rewards, discounts = (
                worlds.by_bootstrap(x.repeat_interleave(self.count, 0))[:, None]
                for x in (batch.rewards / self.episodes.reward_scale, batch.discounts)
            )
            wanted = rewards + discounts * following
        values = worlds.values(worlds.by_bootstrap(here), nodes)
        taken = worlds.by_bootstrap(batch.actions[..., 0].repeat_interleave(self.count, 0))[:, None, :, None]
        found = values.gather(-1, taken.expand(-1, values.shape[1], -1, 1)).squeeze(-1)
        squares = (worlds.by_bootstrap(posterior) * (found - wanted).square()).sum(1)
        cross = -(posterior * worlds.log_given_state(here)).sum(1).mean(-1)
        return (squares * drawn).mean(-1), cross

    @torch.no_grad()
    def judge(self) -> Fit:
        """How well each world explains the episodes held out."""
        joint, steps, marginals = self._joint(self.episodes.held)
        evidence = torch.logsumexp(joint, 1).sum(-1) / len(steps)
        logged = self.episodes.tensors.actions[torch.from_numpy(steps), 0]
        shape = (len(self.seeds), self.count)
        return Fit(evidence.view(shape), excess_variation(marginals, logged).view(shape))

    @torch.no_grad()
    def _joint(self, episodes: np.ndarray) -> tuple[Tensor, np.ndarray, Tensor]:
        """log p(z, episode) (K, M, E), the numbers of their transitions, and E_s E_p(z) pi_b(a | s, z) (K, A)."""
        worlds, log = self.worlds, self.episodes.log
        numbers = log.steps_of(episodes)
        local = torch.from_numpy(np.repeat(np.arange(len(episodes)), log.lengths[episodes]))
        found, marginal, prior = [], torch.zeros(()), worlds.log_prior()
        for start in range(0, len(numbers), CHUNK):
            chunk = torch.from_numpy(numbers[start : start + CHUNK]).expand(len(self.seeds), -1)
            seen = self.episodes.seen(chunk, self.count)
            found.append(worlds.log_likelihood(seen))
            given = worlds.log_behaviour(seen.observations, seen.allowed).exp()
            marginal = marginal + (given * prior.exp()[..., None, None]).sum((1, 2))
        joint = episode_log_likelihood(torch.cat(found, -1), prior, local, len(episodes))
        return joint, numbers, marginal / len(numbers)

    @torch.no_grad()
    def counterfactual(self, observations: Tensor) -> Tensor:
        """(S, B, ...) -> (S, W, b, B, A): E_z Q_w(s, a, z), with z as `config.counterfactual` says."""
        worlds = self.worlds
        seen = observations.repeat_interleave(self.count, 0)
        if self.config.counterfactual == "prior":
            log_weights = worlds.log_prior()[..., None].expand(-1, -1, seen.shape[1])
        else:
            log_weights = worlds.log_given_state(seen)
        weights = worlds.by_bootstrap(log_weights.exp())[..., None]  # (K * b, M, B, 1)
        values = worlds.values(worlds.by_bootstrap(seen), worlds.by_bootstrap(worlds.nodes))
        mean = (weights * values).sum(1) * self.episodes.reward_scale  # (K * b, B, A)
        return mean.unflatten(0, (len(self.seeds), self.count, self.config.bootstraps))

    @torch.no_grad()
    def adjustment(self) -> Tensor:
        """(S, W, N): weight of each transition in each world; 1 outside the training part."""
        worlds, numbers = self.worlds, self.episodes.transitions
        episodes, local = np.unique(self.episodes.log.episode[numbers], return_inverse=True)
        posterior = torch.softmax(self._joint(episodes)[0], 1)  # (K, M, E)
        weights = torch.ones(len(worlds.nodes), len(self.episodes.log))
        for start in range(0, len(numbers), CHUNK):
            chunk = torch.from_numpy(numbers[start : start + CHUNK])
            seen = self.episodes.seen(chunk.expand(len(self.seeds), -1), self.count)
            weights[:, chunk] = adjustment_weights(
                posterior[..., torch.from_numpy(local[start : start + CHUNK])],
                worlds.log_given_state(seen.observations),
                worlds.log_taken(seen),
                self.config.most_weight,
            )
        return weights.unflatten(0, (len(self.seeds), self.count))

    def _draws(self, purpose: str, count: int, steps: int, size: int) -> Iterator[np.ndarray]:
        """`steps` arrays (S, size) of numbers below `count`."""
        streams = [generator(seed, f"worlds/{purpose}") for seed in self.seeds]
        for _ in range(steps):
            yield np.stack([stream.integers(count, size=size) for stream in streams])

    def _bootstrap_weights(self, episodes: int) -> Tensor:
        """(S, b, E): how often each bootstrap drew each episode (Poisson, mean 1); the same in every world."""
        shape = (self.config.bootstraps, episodes)
        drawn = [generator(seed, "worlds/bootstrap").poisson(1.0, shape) for seed in self.seeds]
        return torch.from_numpy(np.stack(drawn)).float()


def _parameters(worlds: Worlds, *, values: bool) -> list[torch.nn.Parameter]:
    late = ("values.", "given_state.")
    return [p for name, p in worlds.named_parameters() if name.startswith(late) == values]


def _step(optimiser: torch.optim.Optimizer, loss: Tensor, rate: float, progress: float) -> None:
    """One step of a rate that falls to 0 over the second half."""
    optimiser.param_groups[0]["lr"] = rate * min(1.0, 2 * (1 - progress))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
