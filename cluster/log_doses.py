"""Treatment channels of a log's actions, where they are known: by declared decision makers, or by the environment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.log_spec import ActionSpec, LogSpec
from refork.trainers.joint_actions import JointActions

JOINT = {
    "refork/IcuSepsis-v0": ((5, 5), ("fluids", "vasopressor")),
    "refork/SyntheticCohort-v0": ((5, 5), ("iv", "vaso")),
    "refork/SepsisSCM-v0": ((2, 2, 2), ("antibiotics", "ventilation", "vasopressor")),
}
"""What one decision maker's action codes: levels of each channel, the last one fastest, and their names."""


@dataclass(frozen=True)
class Channels:
    """Dose levels of joint action a: `levels[c][a]` of channel c."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def levels(self) -> np.ndarray:
        """(C, A), int64"""
        return np.indices(self.sizes).reshape(len(self.sizes), -1)

    @property
    def actions(self) -> list[str]:
        """What each joint action is, e.g. "iv 4, vaso 2"."""
        return [", ".join(map("{} {}".format, self.names, doses)) for doses in self.levels.T]


def maker_names(action: ActionSpec) -> tuple[str, ...]:
    """Of the decision makers: declared, or their numbers."""
    return action.names or tuple(f"decision maker {i}" for i in range(action.agents))


def why_no_clusters(spec: LogSpec) -> str:
    """Why actions cannot be grouped by their magnitude, and what can be done about it; "": they can."""
    if channels(spec) is None:
        if spec.action.kind == "continuous":
            return "the actions are continuous"
        return (
            "nothing declares these actions' numbers to be doses: in a schema, action.counts without joint makes each "
            "of several columns a decision maker whose actions are doses in order; for a single column there is no way"
        )
    return "" if JointActions(spec.action).count else "too many joint actions to list"


def channels(spec: LogSpec) -> Channels | None:
    """None: nothing says what an action's number means."""
    action = spec.action
    if action.kind == "continuous":
        return None
    if action.agents > 1:
        return Channels(maker_names(action), action.sizes)
    sizes, names = JOINT.get(spec.env, ((), ()))
    return Channels(names, sizes) if sizes and int(np.prod(sizes)) == action.sizes[0] else None
