"""What this machine has; said before the start, where waiting for more would be for ever. Imports no Ray."""

from __future__ import annotations

import os
from pathlib import Path

from refork.envs.forkable import BadInput


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


def check_resources(actors: int, learners: int = 1) -> None:
    """Raises BadInput for more rollout actors or learners than cores, and for actors beside several learners."""
    for key, count in (("rollout.actors", actors), ("cluster.learners", learners)):
        if count > cores():
            what = key.split(".")[1]
            raise BadInput(f"{key}: {count} {what} need as many CPU cores, this machine has {cores()}; ask for fewer")
    if learners > 1 and actors:
        raise BadInput("rollout.actors: several learners play by themselves; set it to 0, or cluster.learners to 1")


def kernel_oom_kills() -> int:
    """Processes the kernel has killed for lack of memory since boot; 0 where it does not say."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0
