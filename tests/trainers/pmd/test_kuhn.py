"""Our objectives on Kuhn poker, judged by OpenSpiel: a game whose value and exploitability are known exactly."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pyspiel
import pytest
import torch
from refork.trainers.pmd.loss import Decisions, Objective, policy_loss, uniform
from torch import Tensor

GAME = pyspiel.load_game("kuhn_poker")
VALUE = -1 / 18
UNIFORM_EXPLOITABILITY = 0.458333
MOVES = 2


@cache
def _states() -> tuple[str, ...]:
    """All information states, in the order they are first met."""
    found: dict[str, None] = {}

    def visit(state: pyspiel.State) -> None:
        if not state.is_terminal():
            if not state.is_chance_node():
                found[state.information_state_string()] = None
            for action in state.legal_actions():
                visit(state.child(action))

    visit(GAME.new_initial_state())
    return tuple(found)


def _policy(log_probs: Tensor) -> dict[str, list[tuple[int, float]]]:
    rows = log_probs.exp().double()
    rows = (rows / rows.sum(1, keepdim=True)).tolist()
    return {name: list(enumerate(row)) for name, row in zip(_states(), rows, strict=True)}


def _exploitability(log_probs: Tensor) -> float:
    return pyspiel.exploitability(GAME, _policy(log_probs))


def _advantages(log_probs: Tensor) -> Tensor:
    """(states, moves): Q - V of the player to move, averaged over the histories that chance and the other made."""
    policy = _policy(log_probs)
    weights: dict[str, float] = defaultdict(float)
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * MOVES)

    def visit(state: pyspiel.State, reach: tuple[float, float, float]) -> list[float]:
        """Expected returns; `reach`: of player 0, player 1 and chance."""
        if state.is_terminal():
            return state.returns()
        player = state.current_player()
        name = "" if state.is_chance_node() else state.information_state_string()
        odds = state.chance_outcomes() if state.is_chance_node() else policy[name]
        below = []
        for action, p in odds:
            place = 2 if state.is_chance_node() else player
            below.append(visit(state.child(action), tuple(r * p if i == place else r for i, r in enumerate(reach))))
        if name:
            others = reach[1 - player] * reach[2]
            weights[name] += others
            sums[name] = [s + others * b[player] for s, b in zip(sums[name], below, strict=True)]
        return [sum(p * b[i] for (_, p), b in zip(odds, below, strict=True)) for i in range(2)]

    visit(GAME.new_initial_state(), (1.0, 1.0, 1.0))
    q = torch.tensor([[s / max(weights[name], 1e-12) for s in sums[name]] for name in _states()])
    return q - (log_probs.exp() * q).sum(1, keepdim=True)


def _train(objective: Objective, iterations: int) -> Tensor:
    """Both players learn at once; the loss is exact: every move of every state is a decision, weighted by its odds."""
    rows = len(_states())
    logits = torch.zeros(rows, MOVES, requires_grad=True)
    mask = torch.ones(rows * MOVES, MOVES, dtype=torch.bool)
    moves = torch.arange(MOVES).repeat(rows)
    for _ in range(iterations):
        old = logits.detach().log_softmax(1)
        weighted = (MOVES * old.exp() * _advantages(old)).flatten()
        seen = Decisions(mask, moves, old.repeat_interleave(MOVES, 0), weighted, uniform(mask))
        optimiser = torch.optim.SGD([logits], lr=3.0)
        for _ in range(6):
            optimiser.zero_grad()
            policy_loss(logits.log_softmax(1).repeat_interleave(MOVES, 0), seen, objective).total.backward()
            optimiser.step()
    return logits.detach().log_softmax(1)


def test_the_oracle_says_what_is_known() -> None:
    start = torch.zeros(len(_states()), MOVES).log_softmax(1)
    assert len(_states()) == 12
    assert _exploitability(start) == pytest.approx(UNIFORM_EXPLOITABILITY, abs=1e-5)


def _value(log_probs: Tensor) -> float:
    """What the first player gets."""
    policy = _policy(log_probs)

    def visit(state: pyspiel.State) -> float:
        if state.is_terminal():
            return state.returns()[0]
        odds = state.chance_outcomes() if state.is_chance_node() else policy[state.information_state_string()]
        return sum(p * visit(state.child(action)) for action, p in odds)

    return visit(GAME.new_initial_state())


def test_with_a_magnet_two_learners_come_close_to_the_equilibrium() -> None:
    found = _train(Objective(forward=1.0, magnet=0.05), 250)
    assert _exploitability(found) < 0.12  # .094; what is left is the magnet's pull
    assert _value(found) == pytest.approx(VALUE, abs=0.04)
