"""The rules of the sepsis structural causal model: the one description that sampling and exact values both use.

A patient is `diabetes` (fixed), four vital signs and three flags of what was given last. Given these and the action,
the vital signs change independently of each other, so that a step is one categorical draw for each of them, and the
rules are four tables of probabilities. Source: Oberst and Sontag 2019 (arXiv 1905.05824) and its published code.

States are numbered in mixed radix: diabetes, heart rate, systolic pressure, oxygen, glucose, then the flags
antibiotics, vasopressor, ventilation; the last varies fastest. Actions are 4 * antibiotics + 2 * ventilation +
vasopressor: another order than that of the flags.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

VITALS = {"heart_rate": 3, "systolic_pressure": 3, "oxygen": 2, "glucose": 5}
"""How many levels each vital sign has."""
NORMAL = (1, 1, 1, 2)
FLAGS = ("antibiotics", "vasopressor", "ventilation")
CHANNELS = ("antibiotics", "ventilation", "vasopressor")
"""Treatments in the order of the bits of an action."""
ACTIONS, TREATED, SIGNS = 8, 8, 90
"""Actions, values of the flags, and values of the vital signs."""
STATES = 2 * SIGNS * TREATED
HORIZON = 20
DEATH, DISCHARGE = -1.0, 1.0
DIABETIC = 0.2
"""Share of patients with diabetes before any is redrawn."""
START = ([0.25, 0.5, 0.25], [0.25, 0.5, 0.25], [0.2, 0.8])
START_GLUCOSE = ([0.05, 0.15, 0.6, 0.15, 0.05], [0.01, 0.05, 0.15, 0.6, 0.19])
"""Without and with diabetes."""

Moves = Sequence[tuple[int, int, float]]


def flags_after(action: np.ndarray) -> np.ndarray:
    """Actions -> the flags that they leave."""
    antibiotics, ventilation, vasopressor = action >> 2 & 1, action >> 1 & 1, action & 1
    return antibiotics << 2 | vasopressor << 1 | ventilation


def levels() -> np.ndarray:
    """(90, 4): the vital signs of each of their combinations, in the order of numbering."""
    return np.stack(np.unravel_index(np.arange(SIGNS), tuple(VITALS.values())), -1)


def rewards() -> np.ndarray:
    """(8, 90): reward of entering flags and vital signs; where it is not 0 the episode ends."""
    abnormal = (levels() != np.array(NORMAL)).sum(-1)
    reward = np.zeros((TREATED, SIGNS))
    reward[:, abnormal >= 3] = DEATH
    reward[0, abnormal == 0] = DISCHARGE
    return reward


def start() -> np.ndarray:
    """(2, 8, 90): where patients begin: untreated, and redrawn with their diabetes when that would be an end."""
    first = np.zeros((2, TREATED, SIGNS))
    for diabetes, glucose in enumerate(START_GLUCOSE):
        signs = np.array([1 - DIABETIC, DIABETIC][diabetes : diabetes + 1])
        for part in (*START, glucose):
            signs = np.kron(signs, part)
        first[diabetes, 0] = np.where(rewards()[0] == 0, signs, 0)
    return first / first.sum()


@cache
def rules(published_glucose: bool = False) -> tuple[np.ndarray, ...]:
    """What a step does to each vital sign, in the order of VITALS: (diabetes 2, flags 8, action 8, level, next level).

    `published_glucose`: without diabetes glucose goes *up* to min(1, level + 1), as the published code has it.
    """
    tables = tuple(np.zeros((2, TREATED, ACTIONS, n, n)) for n in VITALS.values())
    for diabetes in range(2):
        for flags in range(TREATED):
            for action in range(ACTIONS):
                for table, steps in zip(tables, _steps(diabetes, flags, action, published_glucose), strict=True):
                    table[diabetes, flags, action] = np.linalg.multi_dot([np.eye(table.shape[-1]), *steps])
    return tables


def _steps(diabetes: int, flags: int, action: int, published: bool) -> list[list[np.ndarray]]:
    """What happens to each vital sign, one matrix after the other: treatments in order, then fluctuations."""
    had = {name: bool(flags >> 2 - i & 1) for i, name in enumerate(FLAGS)}
    now = {name: bool(action >> 2 - i & 1) for i, name in enumerate(CHANNELS)}
    touched = {name: had[name] or now[name] for name in FLAGS}  # given, or withdrawn in this step
    heart, pressure, oxygen, glucose = ([] for _ in VITALS)
    if touched["antibiotics"]:
        moved = _moves(3, [(2, 1, 0.5)] if now["antibiotics"] else [(1, 2, 0.1)])
        heart.append(moved)
        pressure.append(moved)
    if touched["ventilation"]:
        oxygen.append(_moves(2, [(0, 1, 0.7)] if now["ventilation"] else [(1, 0, 0.1)]))
    if now["vasopressor"]:
        pressure.append(_moves(3, [(1, 2, 0.9), (0, 1, 0.5), (0, 2, 0.4)] if diabetes else [(0, 1, 0.7), (1, 2, 0.7)]))
        glucose.append(_moves(5, [(g, g + 1, 0.5) for g in range(4)] if diabetes else []))
    elif had["vasopressor"]:
        falls = 0.05 if diabetes else 0.1
        pressure.append(_moves(3, [(1, 0, falls), (2, 1, falls)]))
    if not touched["antibiotics"]:
        heart.append(_fluctuates(3, 0.1))
    if not touched["antibiotics"] and not touched["vasopressor"]:
        pressure.append(_fluctuates(3, 0.1))
    if not touched["ventilation"]:
        oxygen.append(_fluctuates(2, 0.1))
    if not now["vasopressor"]:
        top = 1 if published and not diabetes else 4
        glucose.append(_fluctuates(5, 0.3 if diabetes else 0.1, top))
    return [heart, pressure, oxygen, glucose]


def _moves(n: int, moves: Moves) -> np.ndarray:
    """(n, n): from one level to another with that probability; else it stays."""
    matrix = np.eye(n)
    for before, after, probability in moves:
        matrix[before, before] -= probability
        matrix[before, after] += probability
    return matrix


def _fluctuates(n: int, probability: float, top: int | None = None) -> np.ndarray:
    """(n, n): down and up by one, each with `probability`, within 0 and `top`."""
    most = n - 1 if top is None else top
    down = [(g, max(g - 1, 0), probability) for g in range(n)]
    return _moves(n, [*down, *((g, min(g + 1, most), probability) for g in range(n))])
