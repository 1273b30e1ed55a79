"""One coupled graph game as a PettingZoo ParallelEnv that can go back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from pettingzoo import ParallelEnv
from refork.envs.forkable import Noise, Outcome, Reward, StateMismatch, StateRef
from refork.envs.graph_game.game import Alignment, Clearing, Game, GameState
from refork.envs.graph_game.instance import AGENTS, Instance
from refork.envs.graph_game.observe import observe
from refork.envs.graph_game.opening import check_options, open_instance, padded_sizes
from refork.envs.graph_game.seat import Seat, SeatObservation, View

Infos = dict[str, dict[str, Any]]
SEEDS = 2**31


class GraphGameEnv(ParallelEnv[str, SeatObservation, int]):
    """Both operators, always in the order of AGENTS, move at once and terminate together after the last round.

    With `noise`, a reset and a `restore(noise="fresh")` draw demand from a generator that `reset(seed=...)` seeds.
    """

    metadata = {"name": "graph_game_v0", "render_modes": [], "is_parallelizable": True}  # noqa: RUF012

    def __init__(
        self,
        task: str | Path | Instance = "charging-regular-n20-0",
        *,
        view: View = "masked",
        alignment: Alignment = "general",
        clearing: Clearing = "prices",
        noise: float = 0.0,
        max_sites: int | None = None,
        max_nodes: int | None = None,
    ) -> None:
        """`task`: an instance, the folder of one, or the name of a generated one.

        `max_sites`, `max_nodes`: what observations and actions are padded to (default: the instance's own sizes).
        Raises BadInput.
        """
        self.instance = open_instance(task)
        check_options(view, alignment, clearing, noise)
        sizes = padded_sizes(self.instance, max_sites, max_nodes)
        self._options: dict[str, Any] = {"alignment": alignment, "clearing": clearing, "noise": noise}
        self._seats = {agent: Seat.of(self.instance, i, sizes, view) for i, agent in enumerate(AGENTS)}
        self.observation_spaces = {agent: seat.observation_space() for agent, seat in self._seats.items()}
        self.action_spaces = {agent: seat.action_space() for agent, seat in self._seats.items()}
        self.possible_agents = list(AGENTS)
        identity = {"instance": self.instance.digest(), **self._options}
        self._identity = {name: str(value) for name, value in identity.items()}
        self._rng, _ = seeding.np_random(None)
        self._begin(int(self._rng.integers(SEEDS)))

    def _begin(self, seed: int) -> None:
        self.game = Game([self.instance], noise_seeds=[seed], **self._options)
        self._noise: list[tuple[int, int]] = []  # (draw, round from after which it holds)
        self._earned = np.zeros(len(AGENTS))
        self.agents = list(AGENTS)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self.action_spaces[agent]

    def _observations(self) -> dict[str, SeatObservation]:
        seen = observe(self.game)
        return {agent: seat.observe(seen) for agent, seat in self._seats.items()}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, SeatObservation], Infos]:
        """`options` are PettingZoo's; the game has none."""
        if seed is not None:
            self._rng, _ = seeding.np_random(seed)
        self._begin(int(self._rng.integers(SEEDS)))
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, SeatObservation], dict[str, float], dict[str, bool], dict[str, bool], Infos]:
        """Infos hold the round's true payoff `own` and the joint `welfare`, whatever the alignment of the rewards.

        Raises ValueError when a move is missing or illegal, RuntimeError after the end.
        """
        if not self.agents:
            raise RuntimeError("the game has ended: call reset or restore")
        if missing := [agent for agent in AGENTS if agent not in actions]:
            raise ValueError(
                f"round {self.game.t}: no move of {', '.join(missing)}; both operators move in every round"
            )
        moves = [seat.move(int(actions[agent])) for agent, seat in self._seats.items()]
        payoff = self.game.step(np.array([moves]))
        self._earned = self._earned + payoff.own[0]
        ended = self.game.ended
        self.agents = [] if ended else list(AGENTS)
        welfare = float(payoff.welfare[0])
        infos = {a: {"own": float(own), "welfare": welfare} for a, own in zip(AGENTS, payoff.own[0], strict=True)}
        rewards = {agent: float(reward) for agent, reward in zip(AGENTS, payoff.rewards[0], strict=True)}
        return self._observations(), rewards, dict.fromkeys(AGENTS, ended), dict.fromkeys(AGENTS, False), infos

    @property
    def state_id(self) -> str:
        """Of the instance, the rules, all that changed, what was earned, and the demand seen so far."""
        sha = hashlib.sha256(json.dumps(self._identity).encode())
        for name, value in sorted(vars(self.game.state).items()):
            sha.update(name.encode() + np.ascontiguousarray(value).tobytes())
        sha.update(self._earned.tobytes() + self.game.demand[: self.game.t + 1].tobytes())
        return sha.hexdigest()

    def snapshot(self) -> StateRef:
        state = {name: np.asarray(value).tolist() for name, value in vars(self.game.state).items()}
        noise = {"seed": int(self.game.seeds[0]), "draws": [list(d) for d in self._noise]}
        return StateRef(
            self.state_id, {"game": self._identity, "state": state, "noise": noise, "earned": self._earned.tolist()}
        )

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> dict[str, SeatObservation]:
        """`same` replays the demand of the snapshot; `fresh` draws that of the rounds not yet seen anew, every time."""
        payload = ref.payload
        for name, value in self._identity.items():
            if (other := payload.get("game", {}).get(name)) != value:
                raise StateMismatch(f"the reference is of another game: its {name} is {other}, here it is {value}")
        self._begin(int(payload["noise"]["seed"]))
        state = GameState(payload["state"]["t"], **{n: np.array(v) for n, v in payload["state"].items() if n != "t"})
        for draw, seen in payload["noise"]["draws"]:
            self._redraw(replace(state, t=seen), draw)
        self.game.restore(state, noise="same")
        self._earned = np.array(payload["earned"])
        if self.state_id != ref.state_id:
            raise StateMismatch(
                f"round {state.t} restored is {self.state_id[:12]}, the reference names {ref.state_id[:12]}"
            )
        if noise == "fresh":
            self._redraw(state, int(self._rng.integers(1, SEEDS)))
        self.agents = [] if self.game.ended else list(AGENTS)
        return self._observations()

    def _redraw(self, state: GameState, draw: int) -> None:
        self.game.restore(state, noise="fresh", draw=draw)
        self._noise.append((draw, state.t))

    def grade(self) -> Outcome:
        """The welfare so far: the joint payoff of the rounds played."""
        return Reward(float(self._earned.sum()))

    def close(self) -> None:
        """Nothing is held."""
