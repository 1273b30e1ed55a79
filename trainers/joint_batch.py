"""A minibatch as the critic of a joint value sees it, beside `agent_batch`."""

from __future__ import annotations

from refork.envs.log_spec import ObservationSpec
from torch import Tensor
from torch.nn import functional


def joint_observations(observations: Tensor, spec: ObservationSpec) -> Tensor:
    """What all decision makers see, as heads of `LogNetworks.joint` take it: (S, B, n, ...) -> (S, B, n * features).

    Shared observations are returned as they are.
    """
    if not spec.per_agent:
        return observations
    seen = functional.one_hot(observations, spec.size).float() if spec.kind == "states" else observations
    return seen.flatten(-2)
