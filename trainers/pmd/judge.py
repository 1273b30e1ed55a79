"""What an iteration's frozen networks say about the games: old log-probabilities, advantages, value targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from refork.agents.cross_graph import CrossGraph
from refork.agents.cross_graph_critic import CounterfactualCritic, Critic
from refork.trainers.pmd.advantages import RunningScale, counterfactual_baseline, gae
from refork.trainers.pmd.batch import Judged, Part
from refork.trainers.pmd.config import AlgorithmConfig
from refork.trainers.pmd.loss import uniform
from refork.trainers.staleness import correction, together
from torch import Tensor

OPERATORS = ("demand", "supply")
Batches = list[list[tuple[Part, Judged]]]


class Judge:
    """Called once an iteration, before its first gradient step; follows the scale of the value targets."""

    def __init__(
        self,
        config: AlgorithmConfig,
        network: CrossGraph,
        critic: Critic,
        magnet: CrossGraph | None,
        scale: RunningScale,
    ) -> None:
        self._config, self._network, self._critic, self._magnet, self._scale = config, network, critic, magnet, scale

    @torch.no_grad()
    def __call__(self, parts: Sequence[Sequence[Part]], cap: float | None = None) -> tuple[Batches, dict[str, float]]:
        """Old log-probabilities, normalised advantages and value targets of every part.

        `cap`: an older policy played; advantages are weighed by truncated importance weights of one move.
        """
        if self._scale.unset:
            self._scale.update(torch.cat([_returns(part) for batch in parts for part in batch]))
        batches = [[(part, self._part(part)) for part in batch] for batch in parts]
        judged = [j for batch in batches for _, j in batch]
        targets, advantages = (torch.cat([getattr(j, n) for j in judged]) for n in ("targets", "advantages"))
        metrics = {f"return/{name}": float(targets[:, a].mean()) for a, name in enumerate(OPERATORS)}
        metrics["behaviour_gap"] = max(_behaviour_gap(p, j) for batch in batches for p, j in batch)
        self._scale.update(targets)
        mean, spread = advantages.mean(0), advantages.std(0, correction=0).clamp(min=1e-8)
        for j in judged:
            j.advantages, j.targets = (j.advantages - mean) / spread, self._scale.normalise(j.targets)
        if cap is not None:
            metrics |= _weigh(batches, cap)
        return batches, metrics

    def _part(self, part: Part) -> Judged:
        old = self._network(part.features, part.wiring, part.masks)
        critic = self._critic
        if isinstance(critic, CounterfactualCritic):
            found = self._counterfactual(part, old, critic(part.features, part.wiring, part.actions))
        else:
            values = self._scale.restore(critic(part.features, part.wiring)).view(part.rewards.shape)
            found = gae(part.rewards, values, self._config.gae_lambda)
        return Judged(old, found[0].reshape(-1, 2), found[1].reshape(-1, 2), self._magnet_log_probs(part))

    def _counterfactual(
        self, part: Part, old: tuple[Tensor, Tensor], q: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Advantages, and TD(lambda) targets of Q along the moves that were made.

        COMA's advantage begins with Q of the move; the target it is fitted to takes its place, so that a Q not yet
        learned misleads no policy.
        """
        taken = torch.cat([q[a].gather(1, part.actions[:, a : a + 1]) for a in range(2)], 1)
        targets = gae(part.rewards, self._scale.restore(taken).view(part.rewards.shape), self._config.gae_lambda)[1]
        baseline = torch.stack([counterfactual_baseline(q[a], old[a]) for a in range(2)], 1)
        return targets.reshape(-1, 2) - self._scale.restore(baseline), targets

    def _magnet_log_probs(self, part: Part) -> tuple[Tensor, Tensor] | None:
        if self._config.tau == 0:
            return None
        if self._magnet is None:
            return uniform(part.masks[0]), uniform(part.masks[1])
        return self._magnet(part.features, part.wiring, part.masks)


def _returns(part: Part) -> Tensor:
    """(R, 2): sum of the rewards from a round on."""
    return part.rewards.flip(0).cumsum(0).flip(0).reshape(-1, 2)


def _behaviour_gap(part: Part, judged: Judged) -> float:
    """Largest difference between log-probabilities as played and as computed now; 0 up to rounding, or a fault."""
    if not bool(part.behaviour.any()):  # a heuristic played
        return 0.0
    return float((_now(part, judged) - part.behaviour).abs().max())


def _now(part: Part, judged: Judged) -> Tensor:
    """(R, 2): log-probabilities of the moves under the policy of the iteration's start."""
    return torch.cat([judged.old[a].gather(1, part.actions[:, a : a + 1]) for a in range(2)], 1)


def _weigh(batches: Batches, cap: float) -> dict[str, float]:
    found = []
    for part, judged in (pair for batch in batches for pair in batch):
        found.append(correction(_now(part, judged), part.behaviour, cap))
        judged.advantages = judged.advantages * found[-1].weights
    return together(found).metrics()
