"""The sepsis model's chances as one plain tensor, to check against."""

import numpy as np
from refork.envs.clinical.sepsis_scm_exact import HALF, ExactModel
from refork.envs.clinical.sepsis_scm_rules import ACTIONS, STATES


def transitions(model: ExactModel) -> np.ndarray:
    """(1440, 8, 1440), 133 MB; an end leads to itself."""
    tensor = np.zeros((STATES, ACTIONS, STATES))
    for action in range(ACTIONS):
        policy = np.broadcast_to(np.eye(ACTIONS)[action], (STATES, ACTIONS))
        for half, moved in enumerate(model.steps(policy)):
            part = slice(half * HALF, (half + 1) * HALF)
            tensor[part, action, part] = moved
    ends = np.flatnonzero(model.ends)
    tensor[ends, :, ends] = 1
    return tensor
