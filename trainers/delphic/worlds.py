"""What worlds say of a log: how well they explain it, what actions are worth in them, how it is to be adjusted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from refork.agents.worlds import Worlds
from refork.trainers.delphic.config import AlgorithmConfig
from refork.trainers.delphic.episodes import Episodes
from refork.trainers.delphic.gate import Fit, episode_log_likelihood, excess_variation
from refork.trainers.delphic.uncertainty import adjustment_weights
from torch import Tensor

CHUNK = 4096
"""Transitions at a time where all of the log is passed over."""


class WorldFit:
    """Worlds of S seeds and the episodes they are fitted to."""

    def __init__(self, worlds: Worlds, episodes: Episodes, config: AlgorithmConfig, seeds: Sequence[int]) -> None:
        self.worlds, self.episodes, self.config, self.seeds = worlds, episodes, config, seeds
        self.count = len(config.worlds)

    @torch.no_grad()
    def judge(self) -> Fit:
        """How well each world explains the episodes held out."""
        joint, steps, marginals = self.joint(self.episodes.held)
        evidence = torch.logsumexp(joint, 1).sum(-1) / len(steps)
        logged = self.episodes.tensors.actions[torch.from_numpy(steps), 0]
        shape = (len(self.seeds), self.count)
        return Fit(evidence.view(shape), excess_variation(marginals, logged).view(shape))

    @torch.no_grad()
    def joint(self, episodes: np.ndarray) -> tuple[Tensor, np.ndarray, Tensor]:
        """Of these episodes: log p(z, episode) (K, M, E), the numbers of their transitions, and the worlds' action
        marginals E_s E_p(z) pi_b(a | s, z) (K, A)."""
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
        posterior = torch.softmax(self.joint(episodes)[0], 1)  # (K, M, E)
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
