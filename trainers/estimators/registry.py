"""All estimators by name. To add one, write its file and put it into `ESTIMATORS`.

An estimator is a pure function of a task's experience: `credit(experience, options)`. Trajectories without a judgement
get 0 and take part in no mean. Where there is nothing to compare, the result is 0, never NaN, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refork.replay.trajectory import TaskExperience
from refork.trainers.advantages import OUTCOME, Credit, outcome_credit, without_dust
from refork.trainers.crr.advantages import CrrForm, crr_credit
from refork.trainers.estimators.branpo import BranpoOptions, branpo_credit
from refork.trainers.estimators.cost_aware import CostAwareOptions, cost_aware_credit
from refork.trainers.estimators.gigpo import GigpoOptions, gigpo_credit
from refork.trainers.estimators.rtmc import RtmcOptions, rtmc_credit
from refork.trainers.estimators.spo import SpoOptions, spo_credit
from refork.trainers.estimators.tree_grpo import TreeGrpoOptions, tree_grpo_credit
from refork.trainers.estimators.treerl import TreeRlOptions, treerl_credit
from refork.trainers.estimators.turn_credit import TurnCreditOptions, turn_credit
from refork.trainers.estimators.vineppo import VinePpoOptions, vineppo_credit


@dataclass(frozen=True)
class OutcomeOptions:
    """Nothing to choose."""


@dataclass(frozen=True)
class Estimator:
    credit: Callable[[TaskExperience, Any], Credit]
    """(experience, options) -> advantages."""
    options: type[Any]
    """Dataclass of its options; the defaults are its source's, or this project's where there is none."""

    def __call__(self, experience: TaskExperience, **options: Any) -> Credit:
        """With those `options` by name, the others at their defaults; what rounding leaves of a 0 is 0."""
        return without_dust(self.credit(experience, self.options(**options)), experience)


def _outcome(name: str) -> Estimator:
    return Estimator(lambda experience, options: outcome_credit(experience, name), OutcomeOptions)


ESTIMATORS: dict[str, Estimator] = {name: _outcome(name) for name in OUTCOME} | {
    "vineppo": Estimator(vineppo_credit, VinePpoOptions),
    "treerl": Estimator(treerl_credit, TreeRlOptions),
    "tree_grpo": Estimator(tree_grpo_credit, TreeGrpoOptions),
    "gigpo": Estimator(gigpo_credit, GigpoOptions),
    "rtmc": Estimator(rtmc_credit, RtmcOptions),
    "spo": Estimator(spo_credit, SpoOptions),
    "turn_credit": Estimator(turn_credit, TurnCreditOptions),
    "branpo": Estimator(branpo_credit, BranpoOptions),
    "crr": Estimator(crr_credit, CrrForm),
    "cost_aware": Estimator(cost_aware_credit, CostAwareOptions),
}
