"""What this machine has; said before the start, where waiting for more would be for ever. Imports no Ray."""

from __future__ import annotations

import os
from pathlib import Path

from refork.envs.forkable import BadInput


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


def check_resources(actors: int) -> None:
    """Raises BadInput for more rollout actors than cores."""
    if actors > cores():
        raise BadInput(
            f"rollout.actors: {actors} actors need as many CPU cores, this machine has {cores()}; ask for fewer"
        )


def check_learners(learners: int, actors: int) -> None:
    """Raises BadInput for more learners than cores, and for rollout actors beside several."""
    if learners > cores():
        raise BadInput(
            f"cluster.learners: {learners} learners need as many CPU cores, this machine has {cores()}; ask for fewer"
        )
    if learners > 1 and actors:
        raise BadInput("rollout.actors: several learners play by themselves; set it to 0, or cluster.learners to 1")


def kernel_oom_kills() -> int:
    """Processes the kernel has killed for lack of memory since boot; 0 where it does not say."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0
