"""Clears every node of the cluster that this process is part of of what dead processes left there."""

from __future__ import annotations

import logging
from typing import Any

from refork.cluster.local_ray import ray
from refork.cluster.reaper import sweep

log = logging.getLogger("refork.reaper")

PATIENCE_S = 60.0
"""Seconds in which the nodes of a cluster must have been cleared."""


def begin_sweeps() -> dict[str, Any]:
    """Start one on every living node; by node."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    swept = {}
    for node in ray.nodes():
        if node["Alive"]:
            place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            remote = ray.remote(sweep).options(num_cpus=0, scheduling_strategy=place, max_retries=0)
            swept[node["NodeID"]] = remote.remote()
    return swept


def sweep_nodes() -> None:
    """To their end; a node that does not answer in time is warned of."""
    begun = begin_sweeps()
    ray.wait(list(begun.values()), num_returns=len(begun), timeout=PATIENCE_S)
    for node, ref in begun.items():
        try:
            ray.get(ref, timeout=0)
        except ray.exceptions.RayError as error:
            log.warning("node %s was not cleared of what dead runs left: %s", node[:8], str(error).splitlines()[0])
