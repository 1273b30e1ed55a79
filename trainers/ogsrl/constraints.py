"""What a guarded policy must not spend: costs, their budgets, and the multipliers that follow them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from refork.agents.q_networks import LogShape
from refork.trainers.ogsrl.config import AlgorithmConfig
from refork.trainers.ogsrl.loss import damped, dual_step
from refork.trainers.ogsrl.safety import SafetyCosts, limits_of
from torch import Tensor


class Constraints:
    """J costs for each of S seeds: leaving the support of the log, and one a safety limit."""

    def __init__(self, config: AlgorithmConfig, shape: LogShape) -> None:
        """Raises BadInput naming a column that the log does not have."""
        asked = limits_of(shape, config.safety)
        if not asked and config.safety is None:
            warnings.warn(
                "no safety limits: the log has no columns SpO2 or urine_ml_kg_h; name yours in trainer.safety",
                stacklevel=2,
            )
        self.limits = [limit for limit, _ in asked]
        self.names = ["ood", *map(str, self.limits)]
        self.safety = SafetyCosts(shape, self.limits)
        self.discount = 1 - 1 / config.cost_horizon
        """Of costs, a step."""
        self.budgets = torch.zeros(len(self.names))
        self.duals = torch.zeros(config.seeds, len(self.names))
        """(S, J): multipliers."""
        self.effective = torch.zeros_like(self.duals)
        """(S, J): what the policy pays for a unit of cost now."""
        self._asked = [config.ood_budget, *(budget for _, budget in asked)]
        self._config = config
        self._binding = torch.tensor([float(config.guardian), *(1.0 for _ in self.limits)])
        self._own = np.zeros(len(self.names))
        self._watched = torch.zeros_like(self.duals)

    def set_budgets(self, own: np.ndarray) -> None:
        """`own` (J,): what the logged decisions spend, the budget where the settings give none."""
        self._own = own
        budgets = [spent if asked is None else asked for asked, spent in zip(self._asked, own, strict=True)]
        self.budgets = torch.tensor(budgets, dtype=torch.float32)

    def begin(self) -> None:
        """An update begins: what is spent is summed anew."""
        self._watched.zero_()

    def follow(self, spent: Tensor) -> None:
        """A step: the policy spends (S, J) in logged situations. Unguarded, leaving the support is free."""
        config = self._config
        self._watched += spent
        self.duals = self._binding * dual_step(self.duals, spent, self.budgets, config.dual_rate, config.dual_max)
        raised = damped(self.duals, spent, self.budgets, config.dual_gain, config.dual_max)
        self.effective = self._binding * raised

    def metrics(self, steps: int) -> dict[str, float]:
        """Of an update of that many steps: means over seeds of costs, budgets and multipliers, by name."""
        spent, duals = self._watched.mean(0) / steps, self.duals.mean(0)
        row: dict[str, float] = {}
        for k, name in enumerate(self.names):
            row |= {f"cost/{name}": float(spent[k]), f"budget/{name}": float(self.budgets[k])}
            row |= {f"dual/{name}": float(duals[k]), f"clinician/{name}": float(self._own[k])}
        return row

    def state_dict(self) -> dict[str, Any]:
        return {
            "budgets": self.budgets,
            "duals": self.duals,
            "effective": self.effective,
            "own": torch.from_numpy(self._own),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.budgets, self.duals, self.effective = (state[name] for name in ("budgets", "duals", "effective"))
        self._own = state["own"].numpy()
