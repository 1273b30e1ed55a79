"""Learners over torch.distributed: sums of gradients, and experience that all have though each plays its share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from refork.cluster.actors import RayCollector
from refork.cluster.collector import GroupCollector, LocalCollector, Sink
from refork.cluster.playing import PlayerSpec
from refork.cluster.resources import Need
from refork.cluster.running_ray import OwnRay
from refork.replay.player import GroupRequest
from refork.trainers.ranks import Ranks
from torch import Tensor, distributed


class TorchRanks:
    """The process group that this process is a member of."""

    def __init__(self) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()

    def add(self, tensors: Sequence[Tensor]) -> None:
        """One exchange for each kind of number."""
        for kind in dict.fromkeys(tensor.dtype for tensor in tensors):
            some = [tensor for tensor in tensors if tensor.dtype == kind]
            flat = torch.cat([tensor.reshape(-1) for tensor in some])
            distributed.all_reduce(flat)
            for tensor, part in zip(some, flat.split([tensor.numel() for tensor in some]), strict=True):
                tensor.copy_(part.view(tensor.shape))


class RankedCollector:
    """Each learner plays its share, in its own process or on its own actors; all get all of the experience, in the
    order of the requests."""

    def __init__(self, spec: PlayerSpec, need: Need, ranks: Ranks, sinks: Sequence[Sink] = ()) -> None:
        """`need`: of all learners together."""
        self._size, self._sinks = ranks.size, tuple(sinks)
        self._group = distributed.new_group()
        """Of its own: experience may be collected while gradients are added up."""
        share = slice(ranks.rank, None, ranks.size)
        self._own: GroupCollector = (
            RayCollector(spec, need.of_learner(ranks.rank), OwnRay(), share=share)
            if need.actors
            else LocalCollector(spec, share=share)
        )

    def collect(
        self,
        requests: Sequence[GroupRequest],
        weights: Mapping[str, np.ndarray],
        version: int,
        how: Any = None,
        baseline: str = "",
        record: bool = True,
    ) -> list[Any]:
        mine, size = self._own.collect(requests, weights, version, how, baseline), self._size
        parts: list[list[Any]] = [[] for _ in range(size)]
        distributed.all_gather_object(parts, mine, group=self._group)
        played = [parts[i % size][i // size] for i in range(sum(map(len, parts)))]
        for sink in self._sinks if record else ():
            for experience in played:
                sink(experience)
        return played

    def close(self) -> None:
        self._own.close()
