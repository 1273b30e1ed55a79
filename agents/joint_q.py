"""The value of what several decision makers do together, Q_tot(s, a_1..a_n), swept over one of them at a time.

`at` looks at B states once; what it returns answers for many joint actions there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from refork.agents.mixers import Mixing, MonotonicMixer
from refork.agents.q_networks import LogNetworks
from refork.agents.stacked import StackedMLP
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class MonotonicView:
    """Q_tot of discrete actions at B states, by a monotonic mixer."""

    utilities: Tensor
    """(S, B, n, A)"""
    mixing: Mixing

    def of(self, actions: Tensor) -> Tensor:
        """Joint actions (S, B, M, n) int64 -> (S, B, M)."""
        taken = self.utilities.gather(-1, actions.transpose(-1, -2))  # (S, B, n, M)
        return self.mixing.of(taken.transpose(-1, -2))

    def sweep(self, actions: Tensor) -> Tensor:
        """(S, B, n) int64 -> (S, B, n, A): every action of one decision maker, the others as given."""
        return self.mixing.sweep(self.utilities, actions)


class MonotonicQ(nn.Module):
    """Utilities of each decision maker's own observation, mixed by what all see."""

    def __init__(self, factory: LogNetworks, seeds: int, purpose: int) -> None:
        super().__init__()
        self.agents = factory.spec.action.agents
        self.utilities = factory.head(factory.spec.action.width, seeds, self.agents, purpose=purpose)
        self.mixer = MonotonicMixer(factory, seeds, purpose)

    def at(self, own: Tensor, joint: Tensor) -> MonotonicView:
        """Own observations (S * n, B, ...) and joint ones (S, B, ...)."""
        return MonotonicView(self.utility(own), self.mixer(joint))

    def utility(self, own: Tensor) -> Tensor:
        """(S * n, B, ...) -> (S, B, n, A): all that is needed to act."""
        return split_agents(self.utilities(own), self.agents)


@dataclass(frozen=True)
class CentralView:
    """Q_tot at B states by a network of the state and all actions; K = seeds x copies."""

    state: Tensor
    """(K, B, H): the first layer's sum over the state."""
    rows: Tensor
    """(K, n, W, H): the first layer's weights of the actions."""
    rest: StackedMLP | None

    def of(self, actions: Tensor) -> Tensor:
        """Joint actions (K, B, M, n, W), numbers or one-hot -> (K, B, M)."""
        return self._finish(self.state[:, :, None] + self._first(actions))

    def sweep(self, actions: Tensor, candidates: Tensor | None = None) -> Tensor:
        """(K, B, n, W) -> (K, B, n, C): each candidate (K, B, n, C, W) of one, the others as given; None: all W.

        All C * n joint actions go through the network in one pass; the first layer sums only what changes.
        """
        own = torch.einsum("kbnw,knwh->kbnh", actions, self.rows)
        others = (self.state + own.sum(-2))[:, :, None] - own  # (K, B, n, H)
        if candidates is None:
            return self._finish(others[..., None, :] + self.rows[:, None])
        return self._finish(others[..., None, :] + torch.einsum("kbncw,knwh->kbnch", candidates, self.rows))

    def frozen(self) -> CentralView:
        """The same values, for what learns from them; their backward pass is spared the first layer."""
        return CentralView(self.state.detach(), self.rows.detach(), self.rest)

    def _first(self, actions: Tensor) -> Tensor:
        k, b, m = actions.shape[:3]
        return torch.bmm(actions.reshape(k, b * m, -1), self.rows.flatten(1, 2)).view(k, b, m, -1)

    def _finish(self, first: Tensor) -> Tensor:
        """(K, ..., H) -> (K, ...)"""
        if self.rest is None:
            return first.squeeze(-1)
        return self.rest(functional.relu(first).flatten(1, -2)).view(first.shape[:-1])


class CentralQ(nn.Module):
    """A critic of the state and all actions: `width` numbers each, one-hot where actions are discrete."""

    def __init__(self, factory: LogNetworks, seeds: int, purpose: int, copies: int = 1) -> None:
        super().__init__()
        n, width, hidden = factory.spec.action.agents, factory.spec.action.width, factory.hidden
        self.agents, self.copies = n, copies
        first = hidden[0] if hidden else 1
        self.state = factory.joint().head(first, seeds, copies, purpose=purpose, hidden=())
        generators = factory.generators(seeds, copies, purpose + 1)
        self.actions = StackedMLP([n * width, first], generators)
        self.rest = StackedMLP([*hidden, 1], generators) if hidden else None

    def at(self, joint: Tensor) -> CentralView:
        """(S, B, ...), what all decision makers see."""
        seen = joint if self.copies == 1 else joint.repeat_interleave(self.copies, 0)
        state = self.state(seen) + self.actions.biases[0][:, None]
        return CentralView(state, self.actions.weights[0].unflatten(1, (self.agents, -1)), self.rest)


def split_agents(x: Tensor, agents: int) -> Tensor:
    """(S * n, B, ...) -> (S, B, n, ...)"""
    return x.unflatten(0, (-1, agents)).transpose(1, 2)


@dataclass(frozen=True)
class OneHotView:
    """A central critic of discrete actions, asked as a `MonotonicView` is."""

    view: CentralView

    def of(self, actions: Tensor) -> Tensor:
        """Joint actions (S, B, M, n) int64 -> (S, B, M)."""
        return self.view.of(self._one_hot(actions))

    def sweep(self, actions: Tensor) -> Tensor:
        """(S, B, n) int64 -> (S, B, n, A): every action of one decision maker, the others as given."""
        return self.view.sweep(self._one_hot(actions))

    def _one_hot(self, actions: Tensor) -> Tensor:
        return functional.one_hot(actions, self.view.rows.shape[2]).to(self.view.rows.dtype)
