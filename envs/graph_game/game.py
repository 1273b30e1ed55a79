"""The batched core: B coupled graph games, played in step, without a loop over games or nodes.

A round: both operators build at once (one level of one node, or pass), then the round is cleared and paid for. After
the last round both operators have ended. `fork` copies rows: going back and trying again costs an array copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from refork.envs.forkable import Noise
from refork.envs.graph_game.batch import Batch, stack, stack_demand
from refork.envs.graph_game.clearing import Round, clear
from refork.envs.graph_game.exact import clear_exactly
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.observe import Observation, observe
from refork.envs.graph_game.payoff import Payoff, aligned, capital_cost, demand_income, supply_income, upkeep
from refork.envs.topology import Topology

Alignment = Literal["identical", "potential", "general"]
Clearing = Literal["prices", "exact"]


@dataclass(frozen=True)
class GameState:
    """All that changes in B games; arrays are never written to after they are in a state."""

    t: int
    """Rounds played."""
    site_level: np.ndarray
    """(B, N), int64."""
    node_level: np.ndarray
    """(B, M), int64."""
    spent: np.ndarray
    """(B, 2): capital of each operator."""
    covered: np.ndarray
    """(B, N): units served so far."""
    stock: np.ndarray
    """(B, M, S): by age, youngest first, after the round; S = 0 without shelf lives."""
    served: np.ndarray
    """(B, N), in the last round."""
    through: np.ndarray
    """(B, M), in the last round."""

    def take(self, games: np.ndarray) -> GameState:
        """Those rows (G,)."""
        return GameState(self.t, **{name: value[games] for name, value in vars(self).items() if name != "t"})


class Game:
    """B games of one horizon. Moves: node to raise, or N (M) to pass; see `legal`."""

    def __init__(
        self,
        instances: Sequence[Instance],
        *,
        noise: float = 0.0,
        noise_seeds: Sequence[int] | None = None,
        alignment: Alignment = "general",
        clearing: Clearing = "prices",
    ) -> None:
        """`noise` in [0, 1): demand varies by that share around the instance's, drawn from each game's own seed
        (default: its place in the batch)."""
        self.batch = stack(instances)
        self.alignment, self.clearing, self.noise = alignment, clearing, noise
        self.seeds = np.arange(self.batch.games) if noise_seeds is None else np.asarray(noise_seeds)
        self.expected = stack_demand(instances, self.batch.sites)
        """(T, B, N): demand before noise, what the operators may know ahead."""
        self.demand = self._drawn(self.expected, 0)
        self.state = _start(self.batch)

    @property
    def t(self) -> int:
        return self.state.t

    @property
    def horizon(self) -> int:
        return self.batch.horizon

    @property
    def ended(self) -> bool:
        return self.t == self.horizon

    @property
    def topology(self) -> Topology:
        return self.batch.topology

    def _drawn(self, expected: np.ndarray, draw: int) -> np.ndarray:
        """Demand (T, B, N) with noise number `draw` of each game's seed."""
        if self.noise == 0.0:
            return expected
        noise = np.zeros(expected.shape)
        sizes = self.topology.site_mask.sum(1)
        for b, (seed, sites) in enumerate(zip(self.seeds, sizes, strict=True)):  # alike whatever is padded beside it
            noise[:, b, :sites] = np.random.default_rng([int(seed), draw]).uniform(-1, 1, (len(expected), sites))
        return expected * (1 + self.noise * noise)

    def observe(self) -> Observation:
        """What the operators see before the next round."""
        return observe(self)

    def legal(self) -> tuple[np.ndarray, np.ndarray]:
        """Moves (B, N + 1) and (B, M + 1), bool: below the highest level and affordable; the last one, pass, always."""
        left = self.batch.budget - self.state.spent
        sites = (self.state.site_level < self.batch.levels[:, None]) & (self.batch.site["site_capital"] <= left[:, :1])
        nodes = (self.state.node_level < self.batch.levels[:, None]) & (self.next_node_capital() <= left[:, 1:])
        always = np.ones((self.batch.games, 1), np.bool_)
        return np.concatenate([sites, always], 1), np.concatenate([nodes, always], 1)

    def next_node_capital(self) -> np.ndarray:
        """(B, M): what one more level costs, the start included where it is the first."""
        return self.batch.node["node_capital"] + self.batch.node["node_start"] * (self.state.node_level == 0)

    def step(self, actions: np.ndarray) -> Payoff:
        """Play a round with moves (B, 2). Raises ValueError for an illegal one, RuntimeError after the end."""
        if self.ended:
            raise RuntimeError("the games have ended: reset or restore first")
        self._check(actions)
        capital = capital_cost(self.batch, self.next_node_capital(), actions)
        site_level = _raised(self.state.site_level, actions[:, 0])
        node_level = _raised(self.state.node_level, actions[:, 1])
        stock = self._restocked(node_level)
        now = self._round(site_level, node_level, stock)
        flow = (clear_exactly if self.clearing == "exact" else clear)(self.batch, now)
        served = np.bincount(self.topology.pairs[0], flow, site_level.size).reshape(site_level.shape)
        through = np.bincount(self.topology.pairs[1], flow, node_level.size).reshape(node_level.shape)
        stock, waste = self._aged(stock, through)
        early = np.minimum(served, now.knee)
        income = np.stack(
            [
                demand_income(self.batch, early, served - early),
                supply_income(self.batch, through, node_level, waste),
            ],
            1,
        )
        costs = capital + upkeep(self.batch, site_level, node_level)
        self.state = GameState(
            self.t + 1,
            site_level,
            node_level,
            self.state.spent + capital,
            self.state.covered + served,
            stock,
            served,
            through,
        )
        return aligned(income, costs, self.alignment)

    def _check(self, actions: np.ndarray) -> None:
        for agent, legal in enumerate(self.legal()):
            moves = actions[:, agent]
            known = (moves >= 0) & (moves < legal.shape[1])
            wrong = ~known | ~legal[np.arange(len(legal)), np.where(known, moves, 0)]
            if wrong.any():
                game = int(wrong.argmax())
                raise ValueError(f"game {game}, round {self.t}: move {int(moves[game])} of operator {agent} is illegal")

    def _restocked(self, node_level: np.ndarray) -> np.ndarray:
        """Stock (B, M, S) with this round's allotment as the youngest."""
        fresh = self.batch.node["node_capacity"] * node_level
        stock = self.state.stock.copy()
        stock[..., :1] = np.where(self.batch.shelf_life[:, None] > 0, fresh, 0.0)[..., None]
        return stock

    def _round(self, site_level: np.ndarray, node_level: np.ndarray, stock: np.ndarray) -> Round:
        site, node = self.batch.site, self.batch.node
        at_hand = np.where(self.batch.shelf_life[:, None] > 0, stock.sum(-1), node["node_capacity"] * node_level)
        useful = np.minimum(self.demand[self.t], np.maximum(0.0, site["pool"] - self.state.covered))
        first, second = self.topology.pairs
        return Round(
            np.minimum(useful, site["site_capacity"] * site_level),
            at_hand,
            site["price"].ravel()[first] + node["tariff"].ravel()[second],
            np.maximum(0.0, site["knee"] - self.state.covered),
            site["price"] - site["late_price"],
        )

    def _aged(self, stock: np.ndarray, through: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stock after the round, oldest used first, a round older; and what expired (B, M)."""
        if not stock.shape[-1]:
            return stock, np.zeros_like(through)
        older = np.cumsum(stock[..., ::-1], -1)[..., ::-1] - stock  # what is used before each age
        left = stock - np.clip(through[..., None] - older, 0.0, stock)
        last = np.arange(stock.shape[-1]) >= self.batch.shelf_life[:, None, None] - 1
        expired = np.where(last | (self.t + 1 == self.horizon), left, 0.0)
        kept = left - expired
        aged = np.concatenate([np.zeros_like(kept[..., :1]), kept[..., :-1]], -1)
        return aged, expired.sum(-1)

    def fork(self, games: np.ndarray, *, draw: int | None = None) -> Game:
        """An independent batch of these rows (G,), which may repeat, as they stand now.

        The noise still to come is the same, or number `draw` of each game's seed.
        """
        other = object.__new__(Game)
        other.batch = self.batch.take(games)
        other.alignment, other.clearing, other.noise = self.alignment, self.clearing, self.noise
        other.seeds = self.seeds[games]
        other.expected, other.demand = self.expected[:, games], self.demand[:, games]
        other.restore(self.state.take(games), noise="same" if draw is None else "fresh", draw=draw or 0)
        return other

    def restore(self, state: GameState, *, noise: Noise = "fresh", draw: int = 1) -> None:
        """Go back to `state`. `same`: demand stays as it was drawn; `fresh`: as after `redraw(draw)`."""
        self.state = state
        if noise == "fresh":
            self.redraw(draw)

    def redraw(self, draw: int) -> None:
        """Give the rounds to come noise number `draw` of each game's seed; the present one has been seen and stays."""
        seen = self.t + 1
        self.demand = np.concatenate([self.demand[:seen], self._drawn(self.expected, draw)[seen:]])


def _start(batch: Batch) -> GameState:
    sites, nodes = (batch.games, batch.sites), (batch.games, batch.nodes)
    ages = int(batch.shelf_life.max())
    return GameState(
        0,
        np.zeros(sites, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros((batch.games, 2)),
        np.zeros(sites),
        np.zeros((*nodes, ages)),
        np.zeros(sites),
        np.zeros(nodes),
    )


def _raised(level: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Levels (B, N) after raising node `move` (B,); N passes."""
    return level + (np.arange(level.shape[1]) == move[:, None])
