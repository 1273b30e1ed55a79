"""What an update's experience was, in numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.envs.forkable import InfraError, Timeout
from refork.replay.trajectory import TaskExperience


def summarise(experience: Sequence[TaskExperience]) -> dict[str, float]:
    """Metrics by name. `resolved` and `return_mean` are over judged main rollouts, NaN-free: left out when none is.

    `fork_step_share`: of all steps, those spent on branches. `fork_gain`: of branches with another action and both
    sides judged, those that returned more than what they left; `fork_loss`: less. Left out when there are none.
    """
    mains = [t for group in experience for t in group.mains]
    everything = [t for group in experience for t in group.trajectories]
    steps = sum(t.steps for t in everything)
    executed = sum(t.steps_executed for t in everything)
    values = [t.value for t in mains if t.value is not None]
    entropies = [d.entropy for t in mains for d in t.decisions]
    counted = {
        "trajectories": len(everything),
        "branches": len(everything) - len(mains),
        "steps": steps,
        "steps_executed": executed,
        "infra_errors": sum(isinstance(t.outcome, InfraError) for t in everything),
        "timeouts": sum(isinstance(t.outcome, Timeout) for t in everything),
        "state_mismatches": sum("state_mismatch" in t.info for t in everything),
        "rollout_seconds": sum(t.seconds for t in everything),
    }
    branch_steps = sum(t.steps for group in experience for t in group.branches)
    shares = {"cache_hits": 1 - executed / steps, "fork_step_share": branch_steps / steps} if steps else {}
    if gaps := fork_gaps(experience):
        shares |= {
            "fork_gain": float(np.mean([g > 0 for g in gaps])),
            "fork_loss": float(np.mean([g < 0 for g in gaps])),
        }
    if values:
        shares |= {"resolved": float(np.mean([v >= 1.0 for v in values])), "return_mean": float(np.mean(values))}
    if entropies:
        shares["policy_entropy"] = float(np.mean(entropies))
    return {name: float(value) for name, value in (counted | shares).items()}


def fork_gaps(experience: Sequence[TaskExperience]) -> list[float]:
    """What each branch with another action returned beyond the rollout it left, where both were judged."""
    found = []
    for group in experience:
        values = {t.key: t.value for t in group.trajectories}
        for branch in group.branches:
            left = None if branch.origin is None or branch.origin.same_action else values[branch.origin.parent]
            if left is not None and branch.value is not None:
                found.append(branch.value - left)
    return found
