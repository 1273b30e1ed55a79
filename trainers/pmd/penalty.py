"""The weights of the policy objective as training goes on: schedules of eta, adaptive penalties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from refork.trainers.pmd.config import AlgorithmConfig
from refork.trainers.pmd.drift import Drift
from refork.trainers.pmd.loss import Objective

RANGE = 1024.0
"""An adaptive eta stays within this factor of where it began: a policy that stands still would double it for ever."""


class Penalty:
    """eta per operator. Adaptive ones halve when the KL is above 1.5 x its target, and double below target / 1.5."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self._config = config
        self._iteration = 0
        """Mirror descent iterations done."""
        self._adapted = [config.eta, config.eta]

    @property
    def _adaptive(self) -> bool:
        return self._config.update == "ppo_kl" or self._config.eta_schedule == "target"

    def eta(self, operator: int) -> float:
        """Step size of the iteration to come."""
        k = self._iteration + 1
        if self._adaptive:
            return self._adapted[operator]
        return self._config.eta / {"constant": 1.0, "sqrt": k**0.5, "inverse": float(k)}[self._config.eta_schedule]

    def objective(self, operator: int) -> Objective:
        """Loss weights of the iteration to come."""
        c, update = self._config, self._config.update
        return Objective(
            clip=c.clip if update in ("ppo_clip", "mappo") else None,
            forward=1 / self.eta(operator) if update in ("pmd", "mmd") else 0.0,
            backward=1 / self.eta(operator) if update == "ppo_kl" else 0.0,
            magnet=c.tau,
            entropy=c.entropy_bonus,
            distil=c.distil,
        )

    def adapt(self, drifts: Sequence[Drift]) -> None:
        """The iteration is done. PPO's rule (arXiv 1707.06347, section 4): KL(old || new) there, ours for eta."""
        self._iteration += 1
        for a, moved in enumerate(drifts):
            kl, target = moved.kl_reverse if self._config.update == "ppo_kl" else moved.kl, self._config.kl_target
            factor = 0.5 if kl > 1.5 * target else 2.0 if kl < target / 1.5 else 1.0
            low, high = self._config.eta / RANGE, self._config.eta * RANGE
            self._adapted[a] = min(high, max(low, factor * self._adapted[a]))

    def state_dict(self) -> dict[str, Any]:
        return {"iteration": self._iteration, "adapted": list(self._adapted)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._iteration, self._adapted = state["iteration"], list(state["adapted"])
