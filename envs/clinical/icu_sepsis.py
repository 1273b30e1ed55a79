"""ICU-Sepsis (arXiv 2406.05646): 716 states, 25 actions, from the tables of the package `icu-sepsis` 2.0.1.

The tables are read without importing the package (which imports the old gym). A policy is worth exactly what a linear
solve says: the useful range of values is .093 wide, too narrow for a few hundred sampled episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
from refork.envs.clinical.factored import joint, product_of
from refork.envs.clinical.row_sampler import RowSampler
from refork.envs.clinical.states_log import Courses, log_of
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, LogArrays, LogSpec, ObservationSpec, Truth

ENV_ID = "refork/IcuSepsis-v0"
DEATH, SURVIVAL = 713, 714
ACTIONS = 25
LEVELS, CHANNELS = (5, 5), ("fluids", "vasopressor")
"""An action is 5 * level of intravenous fluids + level of vasopressor, each 0 to 4."""


@dataclass(frozen=True)
class Tables:
    """What the package ships."""

    transitions: np.ndarray
    """(716, 25, 716)"""
    start: np.ndarray
    """(716,)"""
    expert: np.ndarray
    """(716, 25): the clinicians' policy, cleaned of rare actions."""
    allowed: np.ndarray
    """(716, 25), bool: admissible actions; others lead where the admissible ones lead on average."""
    features: np.ndarray
    """(716, 47): centres of the clusters that the states are."""


@cache
def tables() -> Tables:
    """Raises BadInput when the package is not installed."""
    try:
        listed = {path.name: path.locate() for path in files("icu-sepsis") or ()}
    except PackageNotFoundError:
        raise BadInput("refork/IcuSepsis-v0 needs the package icu-sepsis: pip install 'refork[clinical]'") from None
    data = np.load(str(listed["dynamics.npz"]))
    lines = Path(str(listed["admissible_actions.txt"])).read_text().splitlines()[1:]
    allowed = np.zeros((len(data["d_0"]), ACTIONS), bool)
    for state, line in enumerate(lines):
        allowed[state, [int(a) for a in line.split()]] = True
    return Tables(
        data["tx_mat"],
        data["d_0"],
        data["expert_policy"],
        allowed,
        data["state_cluster_centers"].astype(np.float32),
    )


def step_matrix(policy: np.ndarray) -> np.ndarray:
    """(716, 25) -> (713, 716): from each state that is not an end to the next one."""
    return np.asarray((policy[:DEATH, None] @ tables().transitions[:DEATH])[:, 0])


def state_values(policy: np.ndarray, gamma: float = 1.0) -> np.ndarray:
    """(716,): chance to survive, discounted by gamma a step; on arrival at survival 1."""
    step = step_matrix(policy)
    values = np.zeros(len(step[0]))
    values[:DEATH] = np.linalg.solve(np.eye(DEATH) - gamma * step[:, :DEATH], step[:, SURVIVAL])
    values[SURVIVAL] = 1.0
    return values


def exact_value(policy: np.ndarray, gamma: float = 1.0) -> float:
    """Value of `policy` (716, 25): the chance to survive, discounted by gamma a step; a linear solve."""
    return float(tables().start[:DEATH] @ state_values(policy, gamma)[:DEATH])


@cache
def optimal_policy(gamma: float = 1.0, worst: bool = False) -> np.ndarray:
    """(716, 25): the best policy, or the worst, by policy iteration."""
    t, sign = tables(), -1 if worst else 1
    policy = np.full(t.expert.shape, 1 / ACTIONS)
    while True:
        values = state_values(policy, gamma)
        values[:DEATH] *= gamma  # of what follows; the reward of survival itself comes undiscounted
        better = np.eye(ACTIONS)[(sign * (t.transitions @ values)).round(12).argmax(-1)]
        if (better == policy).all():
            return policy
        policy = better


@cache
def _leads() -> RowSampler:
    return RowSampler.of(tables().transitions)


class IcuSepsis:
    """The simulator (envs/log_spec.py): a log shows which of the states it is, and carries their 47 features."""

    behaviours = ("expert", "random", "optimal", "worst")

    def __init__(self, factored: bool = False, gamma: float = 1.0) -> None:
        """`factored`: fluids and vasopressor are two decision makers; `gamma`: discount of values. Raises BadInput."""
        if not 0 < gamma <= 1:
            raise BadInput(f"gamma: expected above 0, at most 1, got {gamma}")
        self.features = tables().features
        self.spec = LogSpec(
            ENV_ID,
            ObservationSpec("states", len(self.features), tuple(f"f{k}" for k in range(self.features.shape[1]))),
            ActionSpec("discrete", LEVELS, CHANNELS) if factored else ActionSpec("discrete", (ACTIONS,), ("dose",)),
            reward="1 on survival, else 0",
            step="4 h",
            gamma=gamma,
        )

    def table(self, behaviour: str) -> np.ndarray:
        """(716, 25): what that behaviour does in every state."""
        expert = tables().expert
        match behaviour:
            case "expert":
                return np.where(expert.sum(-1, keepdims=True) > 0, expert, 1 / ACTIONS)
            case "random":
                return np.full(expert.shape, 1 / ACTIONS)
            case "optimal" | "worst":
                return optimal_policy(self.spec.gamma, behaviour == "worst")
        raise BadInput(f"no behaviour {behaviour!r} of {ENV_ID}; there are: {', '.join(self.behaviours)}")

    def policy(self, behaviour: str) -> Act | None:
        """None when its decision makers don't choose independently: of two, the expert's."""
        shares = product_of(self.table(behaviour), self.spec.action.sizes)
        return None if shares is None else lambda states, _allowed: shares[states]

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        """Whole episodes, all patients in step."""
        policy = self.table(behaviour)
        courses = play(policy, episodes, np.random.default_rng(seed))
        numbers = np.arange(len(policy))
        rewards = (numbers == SURVIVAL).astype(np.float32)
        return log_of(self.spec, courses, policy, rewards, numbers >= DEATH, numbers, self.features)

    def truth(self, act: Act, seed: int = 0) -> Truth:
        """Exact: `act` is asked for every state."""
        return self._exact(joint(act(np.arange(len(self.features)), None), self.spec.action.sizes))

    def behaviour_truth(self, behaviour: str) -> Truth:
        """What a behaviour is worth, also when `policy` can't tell it."""
        return self._exact(self.table(behaviour))

    def _exact(self, table: np.ndarray) -> Truth:
        return Truth.solved(exact_value(table, self.spec.gamma))


def play(policy: np.ndarray, patients: int, rng: np.random.Generator) -> Courses:
    """Play patients from the start to their ends under `policy` (716, 25)."""
    leads, chooses = _leads(), RowSampler.of(policy)
    starts, going = tables().start, np.arange(patients)
    states: list[np.ndarray] = [rng.choice(len(starts), patients, p=starts).astype(np.int32)]
    actions, lengths = [], np.zeros(patients, np.int64)
    while len(going):
        here, chosen = states[-1].copy(), np.zeros(patients, np.int8)
        chosen[going] = chooses.draw(here[going], rng.random(len(going)))
        here[going] = leads.draw(here[going] * ACTIONS + chosen[going], rng.random(len(going)))
        lengths[going] += 1
        going = going[here[going] < DEATH]
        states.append(here)
        actions.append(chosen)
    return Courses(np.stack(states, 1), np.stack(actions, 1), lengths)
