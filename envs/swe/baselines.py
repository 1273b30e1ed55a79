"""Policies that learn nothing, over the same observations as those that do: the bar to beat on the repair menu."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from refork.envs.swe.features import COLUMN, KINDS

Observation = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class OchiaiGreedy:
    """Apply the best-ranked edit not tried here, run the failing tests, take back what did not help, submit when all
    pass. Deterministic."""

    def probabilities(self, observation: Observation) -> np.ndarray:
        """(num_actions,) float64: one on the action taken."""
        one = np.zeros(len(observation["mask"]))
        one[self.greedy(observation)] = 1.0
        return one

    def greedy(self, observation: Observation) -> int:
        rows, mask = observation["features"], observation["mask"]
        size = len(rows) - len(KINDS) + 1
        undo, run, _, submit = range(size, size + 4)
        whole = {name: bool(rows[0, COLUMN[name]]) for name in ("clean", "unrun", "not_improved")}
        if whole["clean"]:
            return submit
        if whole["unrun"] and mask[run]:
            return run
        if whole["not_improved"] and mask[undo]:
            return undo
        untried = np.flatnonzero(mask[:size] & (rows[:size, COLUMN["tried"]] == 0))
        return int(untried[self.worth(rows[untried]).argmax()]) if len(untried) else submit

    def worth(self, rows: np.ndarray) -> np.ndarray:
        """(n,) how much each candidate's row speaks for it."""
        return -rows[:, COLUMN["log_place"]]


class NaturalGreedy(OchiaiGreedy):
    """The same, but by the change in log-probability less three times the logarithm of Ochiai's place."""

    def worth(self, rows: np.ndarray) -> np.ndarray:
        return rows[:, COLUMN["natural"]] - 3 * rows[:, COLUMN["log_place"]]


@dataclass(frozen=True)
class Uniform:
    """Any action that may be taken, each as likely as the others."""

    def probabilities(self, observation: Observation) -> np.ndarray:
        """(num_actions,) float64."""
        mask = observation["mask"].astype(np.float64)
        return mask / mask.sum()


BASELINES: dict[str, type[OchiaiGreedy] | type[Uniform]] = {
    "ochiai_greedy": OchiaiGreedy,
    "natural_greedy": NaturalGreedy,
    "random": Uniform,
}
