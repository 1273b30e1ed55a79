"""What a run needs and what there is; said before the start, where waiting for more would be for ever. No Ray here."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig

PRIVATE = "local"
"""The address that means: a Ray of its own, on this machine."""


@dataclass(frozen=True)
class Need:
    """The processes of a run that Ray places; a single learner is the process that was started, and none of them."""

    actors: int = 0
    """Rollout actors, of all learners together."""
    learners: int = 1
    cpus: float = 1.0
    """Of each actor."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """What each actor takes beside, by the names that nodes were started with."""

    @property
    def total(self) -> dict[str, float]:
        """Of each resource, what all need together."""
        learners = self.learners if self.learners > 1 else 0
        own = {name: amount * self.actors for name, amount in self.resources.items()}
        return {"CPU": learners + self.actors * self.cpus, **own}

    def of_learner(self, rank: int) -> Need:
        """The part of one of them: its actors."""
        return replace(self, actors=len(range(rank, self.actors, self.learners)), learners=1)


def need_of(job: JobConfig, learners: int | None = None) -> Need:
    """Of a training job, or of another number of learners than it says.

    Raises BadInput when there are learners without an actor though there are some.
    """
    rollout, learners = job.rollout, job.cluster.learners if learners is None else learners
    if 0 < rollout.actors < learners:
        raise BadInput(
            f"rollout.actors: {rollout.actors} for {learners} learners; every learner has its own: take as many or "
            "more, or 0 to let the learners play"
        )
    return Need(rollout.actors, learners, rollout.cpus, rollout.resources)


def check_room(job: JobConfig) -> None:
    """Is there room for the job where it is to run? A cluster is entered to see. Raises BadInput."""
    need, address = need_of(job), job.cluster.address
    if address == PRIVATE:
        check_resources(need)
    elif not any(need.total.values()):
        raise BadInput(
            f"cluster.address {address}: nothing of this job would run there; set rollout.actors or cluster.learners"
        )
    else:
        from refork.cluster.running_ray import JoinedRay

        JoinedRay.join(address, need).stop()


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0))


def check_resources(need: Need) -> None:
    """Raises BadInput for more learners, or more cores of rollout actors, than this machine has cores.

    Learners wait while actors play, so both may have all.
    """
    for key, count, cpus in (("rollout.actors", need.actors, need.cpus), ("cluster.learners", need.learners, 1.0)):
        if count * cpus > cores():
            what = key.split(".")[1]
            each = "as many" if cpus == 1 else f"{count * cpus:g}"
            raise BadInput(f"{key}: {count} {what} need {each} CPU cores, this machine has {cores()}; ask for fewer")


def check_cluster(need: Need, nodes: Sequence[Mapping[str, float]], address: str) -> None:
    """Raises BadInput when the living `nodes`, by what each has in all, have no room for the run: it would wait for
    ever."""
    there = {name: sum(node.get(name, 0.0) for node in nodes) for name in need.total}
    for name, wanted in need.total.items():
        if wanted > there[name]:
            raise BadInput(
                f"cluster.address {address}: {need.actors} rollout actors and {need.learners} learners need "
                f"{wanted:g} {name}, its {len(nodes)} nodes have {there[name]:g} in all; ask for fewer or add nodes"
            )
    each = {"CPU": need.cpus, **need.resources}
    rooms = sum(_fits(node, each) for node in nodes)
    if rooms < need.actors:
        one = ", ".join(f"{amount:g} {name}" for name, amount in each.items())
        raise BadInput(
            f"cluster.address {address}: its nodes have room for {rooms} rollout actors of {one}, not {need.actors}; "
            "ask for fewer or lower rollout.cpus or rollout.resources"
        )


def _fits(node: Mapping[str, float], each: Mapping[str, float]) -> int:
    """How many of them one node takes."""
    return min((math.floor(node.get(name, 0.0) / amount) for name, amount in each.items() if amount), default=10**9)


def kernel_oom_kills() -> int:
    """Processes the kernel has killed for lack of memory since boot; 0 where it does not say."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0
