"""Networks over logs: what trainers of logged data build their Q, V, policy, behaviour and world models from.

A trainer gets one `LogNetworks`, which knows what the log's observations and actions are, and asks it for heads. All
heads are stacks (agents/stacked.py) with the leading axis seed-major: S seeds times `copies` members each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from refork.agents.stacked import StackedMLP, StackedTable
from refork.envs.log_spec import LogSpec
from torch import Tensor, nn


@dataclass(frozen=True)
class LogShape:
    """What networks are told about a log."""

    spec: LogSpec
    shift: np.ndarray
    """(features,), float32: mean over the training part, subtracted from vectors (and from features of states)."""
    scale: np.ndarray
    """(features,), float32: its standard deviation, divided by."""
    state_features: np.ndarray | None = None
    """(states, features) of logs of states."""


class Head(nn.Module):
    """K networks from observations, and what may stand beside them, to `out` numbers.

    forward(observations, extra=None): (K, B, features) float32, or of states (K, B) int64, with (K, B, extra) joined
    -> (K, B, out). On states the first layer is a table, a linear layer on the states' features, or their sum; without
    hidden layers and features it is a table of the answers.
    """

    shift: Tensor
    scale: Tensor
    features: Tensor | None

    def __init__(
        self,
        shape: LogShape,
        observe: str,
        out: int,
        extra: int,
        hidden: Sequence[int],
        generators: Sequence[torch.Generator],
    ) -> None:
        super().__init__()
        states = shape.spec.observation.kind == "states"
        self.register_buffer("shift", torch.from_numpy(shape.shift), persistent=False)
        self.register_buffer("scale", torch.from_numpy(shape.scale), persistent=False)
        looked = states and observe != "states"
        features = torch.from_numpy(shape.state_features) if looked and shape.state_features is not None else None
        self.register_buffer("features", features, persistent=False)
        first = hidden[0] if hidden else out
        self.table: StackedTable | None = None
        if states and observe != "features":
            self.table = StackedTable(shape.spec.observation.size, first, generators)
        self.first: StackedMLP | None = None
        if self.table is None or looked or extra:
            inputs = (0 if states and not looked else len(shape.shift)) + extra
            self.first = StackedMLP([inputs, first], generators)
        self.rest = StackedMLP([*hidden, out], generators) if hidden else None

    def forward(self, observations: Tensor, extra: Tensor | None = None) -> Tensor:
        x = self.first_layer(observations, self.inputs(observations, extra))
        return x if self.rest is None else self.rest(torch.relu(x))

    def inputs(self, observations: Tensor, extra: Tensor | None = None) -> Tensor | None:
        """What goes into the first linear layer, (K, B, numbers); None when there is only a table."""
        parts = [] if extra is None else [extra]
        if self.features is not None:
            parts.insert(0, (self.features[observations] - self.shift) / self.scale)
        elif self.table is None:
            parts.insert(0, (observations - self.shift) / self.scale)
        return None if self.first is None else torch.cat(parts, -1) if len(parts) > 1 else parts[0]

    def first_layer(self, observations: Tensor, inputs: Tensor | None) -> Tensor:
        """(K, B, width): the sum of the table and the linear layer, before ReLU."""
        if self.first is None or inputs is None:
            assert self.table is not None
            found: Tensor = self.table(observations)
            return found
        x: Tensor = self.first(inputs)
        return x if self.table is None else x + self.table(observations)

    def acting_arrays(self, prefix: str) -> dict[str, np.ndarray]:
        """What `agents/log_policy.py` rebuilds it from: float32 arrays by name."""
        named = dict(self.named_parameters()) | dict(self.named_buffers())
        return {f"{prefix}.{name}": tensor.detach().numpy().copy() for name, tensor in named.items()}


class LogNetworks:
    """What `make_network("q_networks", shape, options, seed)` returns.

    Options: `hidden`, widths of the hidden layers of every head; `observe`, what is seen of a log of states: which one
    it is (states), its features, or both.
    """

    def __init__(
        self, shape: LogShape, hidden: Sequence[int] = (256, 256), observe: str = "states", *, seed: int
    ) -> None:
        if not all(isinstance(width, int) and width >= 1 for width in hidden):
            raise ValueError(f"[agent.options] hidden: widths must be whole numbers of at least 1, got {list(hidden)}")
        if observe not in ("states", "features", "both"):
            raise ValueError(f"[agent.options] observe: states, features or both, got {observe!r}")
        if observe != "states" and shape.spec.observation.kind == "states" and shape.state_features is None:
            raise ValueError(f"[agent.options] observe: this log has no features of its states, {observe!r} needs them")
        self.shape, self.hidden, self._observe, self._seed = shape, tuple(hidden), observe, seed

    @property
    def spec(self) -> LogSpec:
        return self.shape.spec

    def head(
        self,
        out: int,
        seeds: int,
        copies: int = 1,
        extra: int = 0,
        purpose: int = 0,
        hidden: Sequence[int] | None = None,
    ) -> Head:
        """A fresh head of `seeds` x `copies` members, seed-major. Heads of the same shape differ by `purpose`.

        Member (s, c) depends on the agent's seed, s, c and `purpose` alone, not on how many are stacked beside it.
        `hidden`: widths in place of the agent's.
        """
        made = self.generators(seeds, copies, purpose)
        return Head(self.shape, self._observe, out, extra, self.hidden if hidden is None else hidden, made)

    def generators(self, seeds: int, copies: int = 1, purpose: int = 0) -> list[torch.Generator]:
        """Of the members of a head, for networks of other shapes."""
        return [_generator(self._seed, s, c, purpose) for s in range(seeds) for c in range(copies)]

    def joint(self) -> LogNetworks:
        """Makes heads that see what all decision makers see, a vector of (features * n); itself where that is shared.

        States of decision makers are seen one-hot.
        """
        spec = self.spec.observation
        if not spec.per_agent:
            return self
        n, states = self.spec.action.agents, spec.kind == "states"
        seen = replace(spec, kind="vector", size=spec.size * n, names=(), per_agent=False)
        shift = np.zeros(seen.size, np.float32) if states else np.tile(self.shape.shift, n)
        scale = np.ones(seen.size, np.float32) if states else np.tile(self.shape.scale, n)
        shape = LogShape(replace(self.spec, observation=seen), shift, scale)
        return LogNetworks(shape, self.hidden, seed=self._seed)


def _generator(*numbers: int) -> torch.Generator:
    words = np.random.SeedSequence(numbers).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))
