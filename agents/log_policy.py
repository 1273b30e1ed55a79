"""A policy learnt from logs as it acts, rebuilt from exported weights; numpy only. One call answers for a batch.

What it does is told by the names of its arrays, a head each (agents/q_networks.py):

- `logits.*`: the distribution softmax(logits).
- `q.*`: the action of the greatest value; with `gate.*` (log-probabilities of a behaviour policy, up to a constant) and
  `gate_threshold` only among those with at least that share of the likeliest one's probability.
- `action.*`: the continuous action low + (tanh + 1) / 2 (high - low).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from refork.envs.log_spec import LogSpec


@dataclass(frozen=True)
class LogPolicy:
    """S policies in one: `member(s)` is an `Act` (envs/log_spec.py)."""

    spec: LogSpec
    weights: Mapping[str, np.ndarray]
    seeds: int

    def member(self, seed: int) -> MemberPolicy:
        """The policy that the `seed`-th of the stacked trainings found."""
        return MemberPolicy(self, seed)


@dataclass(frozen=True)
class MemberPolicy:
    """One of the stacked policies."""

    policy: LogPolicy
    seed: int

    def __call__(self, observations: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """(B, ...) and (B, n, width) or None -> probabilities (B, n, width), or continuous actions (B, n, dimensions).

        Raises ValueError when `allowed` leaves a decision maker no action.
        """
        spec = self.policy.spec.action
        if spec.kind == "continuous":
            low, high = np.array(spec.low, np.float32), np.array(spec.high, np.float32)
            return low + (np.tanh(self._head("action", observations)) + 1) / 2 * (high - low)
        legal = _legal(spec.sizes, len(observations), allowed)
        if "logits" in self._heads:
            return softmax(self._head("logits", observations), legal)
        if "gate" in self._heads:
            likely = softmax(self._head("gate", observations), legal)
            legal = legal & (likely >= float(self.policy.weights["gate_threshold"]) * likely.max(-1, keepdims=True))
        values = np.where(legal, self._head("q", observations), -np.inf)
        return np.eye(spec.width)[values.argmax(-1)]  # (B, n) -> (B, n, width)

    @property
    def _heads(self) -> set[str]:
        return {name.split(".")[0] for name in self.policy.weights if "." in name}

    def _head(self, name: str, observations: np.ndarray) -> np.ndarray:
        """(B, n, out): members of the seed's heads, one per decision maker."""
        agents, spec = self.policy.spec.action.agents, self.policy.spec
        mine = range(self.seed * agents, (self.seed + 1) * agents)
        own = spec.observation.per_agent
        found = [
            head_output(self.policy.weights, name, k, observations[:, i] if own else observations)
            for i, k in enumerate(mine)
        ]
        return np.stack(found, 1)


def head_output(weights: Mapping[str, np.ndarray], name: str, member: int, observations: np.ndarray) -> np.ndarray:
    """(B, ...) -> (B, out): what member `member` of the head `name` answers, as `agents/q_networks.py: Head` does."""
    table = weights.get(f"{name}.table.rows")
    features = weights.get(f"{name}.features")
    x: np.ndarray | float = 0.0
    if features is not None or table is None:
        seen = observations if features is None else features[observations]
        x = (seen - weights[f"{name}.shift"]) / weights[f"{name}.scale"]
        x = x @ weights[f"{name}.first.weights.0"][member] + weights[f"{name}.first.biases.0"][member]
    if table is not None:
        x = x + table[member][observations]
    depth = 0
    while f"{name}.rest.weights.{depth}" in weights:
        weight, bias = (weights[f"{name}.rest.{kind}.{depth}"][member] for kind in ("weights", "biases"))
        x = np.maximum(x, 0) @ weight + bias
        depth += 1
    return np.asarray(x)


def softmax(logits: np.ndarray, legal: np.ndarray) -> np.ndarray:
    """Probabilities over the last axis, exactly 0 where not legal."""
    logits = np.where(legal, logits.astype(np.float64), -np.inf)
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def _legal(sizes: tuple[int, ...], batch: int, allowed: np.ndarray | None) -> np.ndarray:
    """(B, n, width), bool: within each decision maker's own number of actions, and allowed."""
    legal = np.arange(max(sizes)) < np.array(sizes)[:, None]
    legal = np.broadcast_to(legal, (batch, *legal.shape))
    legal = legal if allowed is None else legal & allowed
    if not legal.any(-1).all():
        raise ValueError("`allowed` leaves a decision maker no action")
    return legal
