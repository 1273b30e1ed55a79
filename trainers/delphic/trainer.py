"""Delphic offline learning (ICLR 2024): pessimism where worlds with a hidden confounder disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from refork.agents.latents import Latent
from refork.agents.worlds import Worlds
from refork.envs.forkable import BadInput
from refork.replay.transitions import LoggedExperience
from refork.trainers.cql.loss import cql_loss, double_q_target, masked
from refork.trainers.delphic.config import AlgorithmConfig
from refork.trainers.delphic.episodes import Episodes
from refork.trainers.delphic.fitting import fit_values, fit_worlds
from refork.trainers.delphic.gate import Fit, compatible
from refork.trainers.delphic.loss import penalised_target
from refork.trainers.delphic.uncertainty import disagreement
from refork.trainers.delphic.worlds import CHUNK, WorldFit
from refork.trainers.log_batch import Batch
from refork.trainers.offline import Objective, OfflineTrainer
from refork.trainers.ranks import own_rows
from torch import Tensor, nn


class Trainer(OfflineTrainer[AlgorithmConfig]):
    """Beside the penalised values an unpenalised twin is trained on the same minibatches: what the penalty changes."""

    targeted = ("q", "plain")

    def build(self) -> dict[str, nn.Module]:
        config = self.config
        latents = [Latent.of(text) for text in config.worlds]
        self.worlds = Worlds(
            self.factory, latents, config.world_hidden, seeds=config.seeds, bootstraps=config.bootstraps
        )
        self.compatible: Tensor | None = None
        """(S, W) bool, once the worlds are fitted."""
        self.best = torch.zeros(config.seeds, dtype=torch.int64)
        """(S,): the compatible world that explains the log best."""
        self._delphic: Tensor | None = None
        self._weights: Tensor | None = None
        self._about: dict[str, float] = {}
        return {name: self.factory.head(self.spec.action.width, config.seeds) for name in ("q", "plain")}

    def begin(self, experience: LoggedExperience, update: int) -> None:
        """Fits the worlds once, and says how far they disagree about the logged actions.

        Raises BadInput when no world is compatible with the log.
        """
        if self._delphic is not None:
            return
        tensors = self._minibatches.tensors(experience.log)
        episodes = Episodes(experience, self.factory.shape, tensors, self.config.held_out)
        fit = WorldFit(self.worlds, episodes, self.config, self.seeds)
        if self.compatible is None:
            self._fit(fit)
        self._delphic = self._uncertainty(fit)
        if self.config.adjust:
            weights = fit.adjustment()
            self._weights = weights[torch.arange(len(self.seeds)), self.best]
            used = self._weights[:, torch.from_numpy(np.asarray(experience.transitions))]
            self._about["worlds/adjustment"] = float((used - 1).abs().mean())

    def adopt(self, other: Trainer) -> None:
        """Take the worlds that a trainer of the same log and seeds has fitted, so that settings of the values can be
        compared without fitting worlds again. Raises BadInput when the two were declared otherwise."""
        mine, theirs = (t.config.worlds + t.config.world_hidden + tuple(t.seeds) for t in (self, other))
        if mine != theirs or other.compatible is None:
            raise BadInput("adopt: the other trainer has other worlds or seeds, or has not fitted them")
        self.worlds.load_state_dict(other.worlds.state_dict())
        self.compatible, self.best, self._about = other.compatible, other.best, dict(other._about)

    def _fit(self, fit: WorldFit) -> None:
        config = self.config
        fit_worlds(fit)
        residual = fit_values(fit)
        judged = fit.judge()
        self.compatible = compatible(judged, config.tolerance, config.marginal_tolerance)
        if not self.compatible.any(-1).all():
            raise BadInput(_none(judged, config))
        self.best = judged.log_likelihood.masked_fill(~self.compatible, -torch.inf).argmax(-1)
        self.worlds.requires_grad_(False)
        self._about = {
            "worlds/compatible": float(self.compatible.sum(-1).float().mean()),
            "worlds/log_likelihood": float(judged.log_likelihood.amax(-1).mean()),
            "worlds/likelihood_range": float((judged.log_likelihood.amax(-1) - judged.log_likelihood.amin(-1)).mean()),
            "worlds/variation": float(judged.variation.amax(-1).mean()),
            "worlds/residual": float(residual.mean()),
        }

    def _uncertainty(self, fit: WorldFit) -> Tensor:
        """(S, N): u_d of the logged actions; 0 outside the training part."""
        numbers = torch.from_numpy(np.asarray(fit.episodes.transitions))
        found = torch.zeros(len(self.seeds), len(fit.episodes.log))
        sums = torch.zeros(2)
        for start in range(0, len(numbers), CHUNK):
            chunk = numbers[start : start + CHUNK]
            batch = fit.episodes.tensors.batch(chunk.expand(len(self.seeds), -1))
            values = fit.counterfactual(batch.observations)  # (S, W, b, B, A)
            taken = batch.actions[:, None, None].expand(*values.shape[:4], 1)
            assert self.compatible is not None
            of = disagreement(values.gather(-1, taken).squeeze(-1), self.compatible)
            found[:, chunk] = of.delphic
            sums += torch.stack([of.delphic.sum(), of.epistemic.sum()])
        delphic, epistemic = (sums / (len(self.seeds) * len(numbers))).tolist()
        self._about |= {"worlds/delphic": delphic, "worlds/epistemic": epistemic}
        return found

    def losses(self, batch: Batch) -> Sequence[Objective]:
        assert self._delphic is not None
        allowed = None if batch.allowed is None else batch.allowed[:, :, 0]
        delphic = self._delphic.gather(1, batch.transitions)
        weights = None if self._weights is None else self._weights.gather(1, batch.transitions)
        objectives, choices = [], []
        for name, penalty in (("q", self.config.penalty), ("plain", 0.0)):
            targets = penalised_target(self._targets(name, batch), delphic, penalty, self.config.measure)
            q = self.networks[name](batch.observations)
            choices.append(masked(q.detach(), allowed).argmax(-1))
            terms = cql_loss(q, batch.actions[..., 0], targets, allowed, self.config.alpha, weights)
            objectives.append(Objective((name,), terms))
        self._changed.append((choices[0] != choices[1]).float().mean())
        return objectives

    def _targets(self, name: str, batch: Batch) -> Tensor:
        allowed = None if batch.next_allowed is None else batch.next_allowed[:, :, 0]
        with torch.no_grad():
            online, target = (kept[name](batch.next_observations) for kept in (self.networks, self.targets))
            return double_q_target(batch.rewards, batch.discounts, online, target, allowed)

    def update(self, update: int, experience: Sequence[Any]) -> dict[str, float]:
        """As the base says; adds the worlds, and the share of greedy actions that the penalty changes."""
        self._changed: list[Tensor] = []
        metrics = super().update(update, experience)
        share = len(own_rows(self.ranks, self.config.batch)) / self.config.batch
        changed = share * torch.stack(self._changed).mean()
        self.ranks.add([changed])
        return metrics | self._about | {"changed_actions": float(changed)}

    def weights(self) -> dict[str, np.ndarray]:
        return self.networks["q"].acting_arrays("q")  # type: ignore[operator]

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "worlds": self.worlds.state_dict(),
            "compatible": self.compatible,
            "best": self.best,
            "about": dict(self._about),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As the base says; raises BadInput as well for other worlds, or what another version wrote."""
        super().load_state_dict(state)
        try:
            self.worlds.load_state_dict(state["worlds"])
            self.compatible, self.best, self._about = state["compatible"], state["best"], dict(state["about"])
        except (KeyError, RuntimeError) as error:
            raise BadInput(
                f"the checkpoint is of other worlds than trainer.worlds, or of another version: {error}"
            ) from error
        self._delphic = None


def _none(fit: Fit, config: AlgorithmConfig) -> str:
    return (
        f"trainer.worlds: none of {len(config.worlds)} is compatible with the log: the action marginals differ by at "
        f"least {float(fit.variation.amin()):.3f} in total variation, allowed is trainer.marginal_tolerance = "
        f"{config.marginal_tolerance}; raise trainer.world_epochs, or add worlds"
    )
