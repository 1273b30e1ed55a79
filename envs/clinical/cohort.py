"""A synthetic cohort of septic patients in the published layout (traj, step, o:*, a:*, r:*), and its simulator.

One row is a decision every 4 h for at most 80 h; fluid and vasopressor have five dose levels each. The reward is 0, and
at the last row +1 if the patient is alive after 90 days, else -1. See cohort_body.py for what the patients are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from refork.envs.clinical import cohort_body as bodies
from refork.envs.clinical.cohort_body import CHARTED, FEATURES, LEVELS, VITALS
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act, ActionSpec, Limit, LogArrays, LogSpec, ObservationSpec, Truth, column_number

STEPS = 20
"""Decisions in the window of 80 h."""
BLOCK = 2048
"""Patients simulated at once; each block has a random stream of its own."""
TRUTH_PATIENTS = 20_480
COLUMNS = tuple(f"o:{name}" for name in FEATURES)
USUAL = np.array([value for _, value in FEATURES.values()], float)
GAP = 0.05
"""Chance that the next row comes after more than 4 h."""

Doses = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Filled observations (B, 48) -> probabilities (B, 5) of fluid levels and (B, 5) of vasopressor levels."""


@dataclass(frozen=True)
class Block:
    """B patients, T = 20 steps; only the first `length` steps of a patient are real."""

    seen: np.ndarray
    """(B, T, 48): measured values, NaN where nothing was measured."""
    filled: np.ndarray
    """(B, T, 48): the last measured ones, float32; what anyone acts on."""
    doses: np.ndarray
    """(B, T, 2): levels of fluid and vasopressor."""
    probability: np.ndarray
    """(B, T): of the joint dose."""
    gaps: np.ndarray
    """(B, T): units of 4 h to the next row."""
    lengths: np.ndarray
    survived: np.ndarray
    """(B,) bool: alive after 90 days."""


def simulate(count: int, act: Act, seed: int, block: int) -> Block:
    """One block of patients; `act` gives probabilities (B, 2, 5) or (B, 1, 25).

    The patients and their chances depend on count, seed and block alone, so policies are compared on the same ones.
    """
    rng, choice = (np.random.default_rng([seed, block, k]) for k in range(2))
    body = bodies.admitted(count, rng)
    seen = np.full((count, STEPS, len(FEATURES)), np.nan)
    filled = np.zeros(seen.shape, np.float32)
    doses, probability = np.zeros((count, STEPS, 2), np.int64), np.ones((count, STEPS))
    gaps = np.where(rng.random((count, STEPS)) < GAP, rng.integers(2, 4, (count, STEPS)), 1)
    lengths, survived = np.full(count, STEPS), np.zeros(count, bool)
    alive, latest = np.ones(count, bool), np.broadcast_to(USUAL, (count, len(FEATURES)))
    for step in range(STEPS):
        now = bodies.measured(body, rng)
        there = rng.random(now.shape) < _charted(first=step == 0)
        seen[:, step] = np.where(there, now, np.nan)
        latest = np.where(there, now, latest)
        filled[:, step] = latest
        chances = act(filled[:, step], None)
        doses[:, step], probability[:, step] = _draw(chances.reshape(count, -1, chances.shape[-1]), choice)
        for past in range(int(gaps.max())):  # units of 4 h; the doses go on through a gap
            later = bodies.four_hours(body, doses[:, step, 0], doses[:, step, 1], rng)
            body = _chosen(gaps[:, step] > past, later, body)
        died = rng.random(count) < bodies.death_chance(body)
        left = (bodies.recovered(body) & (step >= 2) & (rng.random(count) < 0.35)) | (step == STEPS - 1)
        lived = rng.random(count) >= bodies.late_death_chance(body)
        ends = alive & (died | left)
        lengths[ends], survived[ends] = step + 1, (lived & ~died)[ends]
        alive = alive & ~ends
    return Block(seen, filled, doses, probability, gaps, lengths, survived)


def _charted(first: bool) -> np.ndarray:
    """(48,): chance that a feature is measured in a step."""
    lab = 0.85 if first else 0.35
    return np.array([1.0 if name in CHARTED else 0.97 if name in VITALS else lab for name in FEATURES])


def _chosen(where: np.ndarray, one: bodies.Body, other: bodies.Body) -> bodies.Body:
    return bodies.Body(**{k: np.where(where, v, getattr(other, k)) for k, v in vars(one).items()})


def _draw(chances: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(B, 2, 5) or (B, 1, 25) -> levels (B, 2) and their joint probability (B,)."""
    cumulative = np.cumsum(chances, -1)
    drawn = rng.random((len(chances), 2))[:, : chances.shape[1], None] * cumulative[..., -1:]
    taken = np.minimum((drawn >= cumulative).sum(-1), chances.shape[-1] - 1)
    joint = np.take_along_axis(chances, taken[..., None], -1)[..., 0].prod(-1)
    return (taken if taken.shape[1] == 2 else np.concatenate(np.divmod(taken, LEVELS), 1)), joint


class SyntheticCohort:
    """The simulator (envs/log_spec.py). `channels`: one decision maker with 25 doses, or one per treatment."""

    behaviours = ("clinician", "protocol", "random", "never_treat")

    def __init__(self, channels: Literal["joint", "factored"] = "joint") -> None:
        self._joint = channels == "joint"
        action = ActionSpec("discrete", (25,), ("a:iv x a:vaso",))
        if not self._joint:
            action = ActionSpec("discrete", (LEVELS, LEVELS), ("a:iv", "a:vaso"))
        observation = ObservationSpec("vector", len(COLUMNS), COLUMNS)
        env = "refork/SyntheticCohort-v0"
        self.spec = LogSpec(env, observation, action, reward=REWARD, horizon=STEPS, step="4 h")

    def policy(self, behaviour: str) -> Act:
        doses = _behaviour(behaviour)

        def act(observations: np.ndarray, _allowed: np.ndarray | None) -> np.ndarray:
            both = np.stack(doses(observations), 1)
            return np.einsum("bi,bv->biv", both[:, 0], both[:, 1]).reshape(-1, 1, 25) if self._joint else both

        return act

    def log(self, behaviour: str, episodes: int, seed: int) -> LogArrays:
        """What the cohort's table holds, filled forward."""
        parts = [self._arrays(block) for block in self._blocks(behaviour, episodes, seed)]
        joined: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        lengths = joined.pop("lengths")
        starts = np.concatenate([[0], np.cumsum(lengths)])
        truncated = np.zeros(starts[-1], bool)
        return LogArrays(self.spec, starts=starts, patients=np.arange(len(lengths)), truncated=truncated, **joined)

    def _blocks(self, behaviour: str, episodes: int, seed: int) -> Iterator[Block]:
        act = self.policy(behaviour)
        for first in range(0, episodes, BLOCK):
            yield simulate(min(BLOCK, episodes - first), act, seed, first // BLOCK)

    def _arrays(self, block: Block) -> dict[str, np.ndarray]:
        real = np.arange(STEPS) < block.lengths[:, None]
        last = np.arange(STEPS) == block.lengths[:, None] - 1
        shown = np.concatenate([block.filled, block.filled[:, -1:]], 1)
        rows = np.arange(len(shown))
        shown[rows, block.lengths] = shown[rows, block.lengths - 1]  # nothing is known after the end
        doses = block.doses[real]
        return {
            "observations": shown[np.arange(STEPS + 1) <= block.lengths[:, None]],
            "actions": doses[:, :1] * LEVELS + doses[:, 1:] if self._joint else doses,
            "rewards": _rewards(block)[real].astype(np.float32),
            "terminated": last[real],
            "behaviour": block.probability[real].astype(np.float32),
            "dt": np.where(last, 1, block.gaps)[real].astype(np.float32),
            "lengths": block.lengths,
        }

    def truth(self, act: Act, seed: int = 0) -> Truth:
        """By simulation of 20,480 patients; the same ones for every policy."""
        found = [np.where(block.survived, 1.0, -1.0) for block in self._judging(act, seed)]
        return Truth.sampled(np.concatenate(found))

    def violating_steps(self, act: Act, limits: Sequence[Limit], seed: int = 0) -> list[Truth]:
        """By simulation of the patients of `truth`. As in a log, the last step leads to what was seen last."""
        columns = [column_number(self.spec.observation, limit.column) for limit in limits]
        counts = []
        for block in self._judging(act, seed):
            steps, rows = np.arange(STEPS), np.arange(len(block.lengths))[:, None]
            led = block.filled[rows, np.minimum(steps + 1, block.lengths[:, None] - 1)]
            real = steps < block.lengths[:, None]
            counts.append(
                [(real & limit.violated(led[..., k])).sum(1) for limit, k in zip(limits, columns, strict=True)]
            )
        return [Truth.sampled(np.concatenate(own)) for own in zip(*counts, strict=True)]

    def _judging(self, act: Act, seed: int) -> Iterator[Block]:
        return (simulate(BLOCK, act, 1_000_003 + seed, k) for k in range(TRUTH_PATIENTS // BLOCK))

    def behaviour_truth(self, behaviour: str) -> Truth:
        """`policy` tells them all."""
        return self.truth(self.policy(behaviour))

    def table(self, behaviour: str, patients: int, seed: int) -> Iterator[dict[str, np.ndarray]]:
        """Blocks of the cohort's table: what was measured, NaN where nothing was; `log` is the same, filled forward."""
        first = 0
        for block in self._blocks(behaviour, patients, seed):
            yield _columns(block, first)
            first += len(block.lengths)


REWARD = "0; in the last row +1 if alive after 90 days, else -1"


def _rewards(block: Block) -> np.ndarray:
    """(B, T)"""
    last = np.arange(STEPS) == block.lengths[:, None] - 1
    return np.where(last, np.where(block.survived, 1.0, -1.0)[:, None], 0.0)


def _columns(block: Block, first: int) -> dict[str, np.ndarray]:
    real = np.arange(STEPS) < block.lengths[:, None]
    steps = np.concatenate([np.zeros_like(block.gaps[:, :1]), np.cumsum(block.gaps, 1)[:, :-1]], 1)
    numbers = np.broadcast_to(np.arange(first, first + len(real))[:, None], real.shape)
    seen, doses = block.seen[real].astype(np.float32), block.doses[real]
    return {
        "traj": numbers[real],
        "step": steps[real],
        **{name: seen[:, k] for k, name in enumerate(COLUMNS)},
        "a:iv": doses[:, 0],
        "a:vaso": doses[:, 1],
        "r:reward": _rewards(block)[real],
        "behaviour_probability": block.probability[real].astype(np.float32),
    }


def table_schema(joint: bool = True) -> str:
    """The schema (TOML) of the table, with one decision maker of 25 doses or one per treatment."""
    first = {f"o:{name}": value for name, (_, value) in FEATURES.items() if name not in CHARTED}
    units = "\n".join(f"#   o:{name}: {unit}" for name, (unit, _) in FEATURES.items())
    return SCHEMA.format(
        units=units,
        joint=json.dumps(joint),
        names=json.dumps([] if joint else ["a:iv", "a:vaso"]),
        reward=json.dumps(REWARD),
        horizon=STEPS,
        first="\n".join(f"{json.dumps(name)} = {float(value)}" for name, value in first.items()),
    )


SCHEMA = """\
# A synthetic cohort. One row is 4 h of one patient:
{units}
#   a:iv: intravenous fluid of the next 4 h, level 0-4;  a:vaso: vasopressor, level 0-4
env = "refork/SyntheticCohort-v0"

[columns]
episode = "traj"
patient = "traj"  # every stay is another patient's
step = "step"
observations = ["o:*"]
actions = ["a:iv", "a:vaso"]
reward = "r:reward"
behaviour_probability = "behaviour_probability"

[action]
kind = "discrete"
counts = [5, 5]
joint = {joint}  # true: one decision maker with 25 doses; false: one per treatment
names = {names}

[episode]
end = "terminated"  # the last row of a stay is its end: the outcome is known
horizon = {horizon}

[time]
unit = "4 h"

[reward]
text = {reward}
gamma = 1.0

[missing]
policy = "forward_fill"

[missing.first]  # where nothing was measured yet
{first}
"""


def _behaviour(name: str) -> Doses:
    match name:
        case "clinician":
            return lambda seen: _around(seen, fluid_lead=1.9, pressor_lead=-0.7, spread=0.9)
        case "protocol":
            return lambda seen: _around(seen, fluid_lead=1.2, pressor_lead=0.2, spread=0.3, random=0.0)
        case "random":
            return lambda seen: (np.full((len(seen), LEVELS), 0.2),) * 2
        case "never_treat":
            return lambda seen: (np.eye(LEVELS)[np.zeros(len(seen), int)],) * 2
    raise BadInput(f"no behaviour {name!r} of the synthetic cohort; there are: {', '.join(SyntheticCohort.behaviours)}")


def _around(
    seen: np.ndarray, fluid_lead: float, pressor_lead: float, spread: float, random: float = 0.05
) -> tuple[np.ndarray, np.ndarray]:
    """Doses around what pressure, urine, lactate and balance call for; clinicians give fluid freely, pressors late."""
    names = list(FEATURES)
    pressure, urine, lactate, rate, pressor = (
        seen[:, names.index(name)].astype(float)
        for name in ("MeanBP", "urine_ml_kg_h", "Arterial_lactate", "HR", "max_dose_vaso")
    )
    low = (72 - pressure) / 9
    fluid = 0.5 * low + 1.5 * np.maximum(0.6 - urine, 0) + 0.2 * (lactate - 2) + (rate - 100) / 18 + fluid_lead
    level = np.searchsorted(bodies.VASO, pressor - 1e-6)
    raised = 0.8 * low + 0.85 * level + 0.1 * (lactate - 2) + pressor_lead - 0.5
    return _softly(fluid, spread, random), _softly(raised, spread, random)


def _softly(wanted: np.ndarray, spread: float, random: float) -> np.ndarray:
    """(B,) -> (B, 5): levels around the wanted one, and each at least with chance random / 5."""
    distance = np.arange(LEVELS) - np.clip(wanted, 0, LEVELS - 1)[:, None]
    weights = np.exp(-((distance / spread) ** 2) / 2)
    return (1 - random) * weights / weights.sum(-1, keepdims=True) + random / LEVELS
