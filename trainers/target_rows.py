"""Values of a target network at every row of the log, for targets that stand still for long.

A target that is copied every T steps answers T times a minibatch; when that is more than the log has rows, asking it
once for each row costs less.
"""

from __future__ import annotations

import torch
from refork.envs.log_spec import LogSpec
from refork.trainers.log_batch import LogTensors
from refork.trainers.offline_config import ValueConfig
from torch import Tensor, nn

LARGEST = 1 << 26
"""Numbers kept at most: 256 MiB."""
AT_ONCE = 4096


class TargetRows:
    """What one target network answers, until `moved`."""

    def __init__(self, network: nn.Module, spec: LogSpec, config: ValueConfig) -> None:
        self._network, self._spec, self._config = network, spec, config
        self._of: LogTensors | None = None
        self._answers: Tensor | None = None

    def moved(self) -> None:
        """The network has changed."""
        self._of = self._answers = None

    def at(self, rows: Tensor, tensors: LogTensors) -> Tensor | None:
        """(K, B) -> (K, B, out), without gradient; None when asking the network costs less."""
        if self._of is not tensors:
            self._of = tensors
            self._answers = self._all(tensors, len(rows)) if self._worth(tensors, len(rows)) else None
        if self._answers is None:
            return None
        members, count, out = self._answers.shape
        numbers = rows + torch.arange(0, members * count, count)[:, None]
        return self._answers.view(-1, out).index_select(0, numbers.flatten()).view(*rows.shape, out)

    def _worth(self, tensors: LogTensors, members: int) -> bool:
        config, rows = self._config, len(tensors.observations)
        small = members * rows * self._spec.action.width <= LARGEST
        return small and config.target_rate == 1 and config.target_every * config.batch > rows

    @torch.no_grad()
    def _all(self, tensors: LogTensors, members: int) -> Tensor:
        """(K, R, out)"""
        parts = [self._network(self._seen(part, members)) for part in tensors.observations.split(AT_ONCE)]
        return torch.cat(parts, 1)

    def _seen(self, part: Tensor, members: int) -> Tensor:
        """(B, ...) or (B, n, ...) -> (K, B, ...)"""
        part = part if part.is_floating_point() else part.long()
        if not self._spec.observation.per_agent:
            return part.expand(members, *part.shape)
        return part.transpose(0, 1).repeat(members // self._spec.action.agents, *[1] * (part.ndim - 1))
