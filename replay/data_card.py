"""The data card: what is in a log, and what to be wary of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from refork.replay.ope.weights import LEAST_ESS
from refork.replay.transitions import SPLIT, Transitions, digest, split_by_patient

QUANTILES = ("min", "p25", "median", "p75", "max")
WILD = 1e6
BLOCK = 1 << 18
MOST_ROWS = 1_000_000
"""Quantiles of features are those of at most so many rows, evenly spaced."""


@dataclass(frozen=True)
class DataCard:
    """JSON values."""

    source: str
    content: str
    """Cohort hash: the digest of all that the log says."""
    env: str
    patients: int
    episodes: int
    transitions: int
    lengths: Mapping[str, float]
    """Of episodes, quantiles."""
    actions: Mapping[str, Any]
    """Per decision maker: how often each action was taken; continuous: quantiles by dimension."""
    rewards: Mapping[str, Any]
    ends: Mapping[str, int]
    dt: Mapping[str, Any]
    behaviour_known: float
    """Share of transitions with a known behaviour probability."""
    missing: Mapping[str, int]
    """Observations that the file left empty, by column."""
    missing_policy: str
    features: Mapping[str, Mapping[str, float]]
    """Per observed feature, filled in as declared: quantiles, mean, sd.

    And `missing`: the share of rows that lacked it, where that is known.
    """
    units: Mapping[str, str]
    """Of features, where the schema declares them."""
    split: Mapping[str, int]
    """Episodes to train, validate and hold out, by the default split."""
    warnings: list[str]


def data_card(log: Transitions, source: str, notes: Mapping[str, Any]) -> DataCard:
    """Of a log that was read from `source`; `notes` are those of its reading ({} when it was not converted)."""
    features, actions, patients = _features(log, notes), _actions(log), len(np.unique(log.patients))
    split = _split(log)
    known = sum(int(np.isfinite(part).sum()) for part in _blocks(log.behaviour)) / len(log)
    dt, few = np.asarray(log.dt), few_held_out(log.episodes, split["held out"], SPLIT[2])
    return DataCard(
        source,
        digest(log),
        log.spec.env,
        patients=patients,
        episodes=log.episodes,
        transitions=len(log),
        lengths=_quantiles(log.lengths),
        actions=actions,
        rewards=_rewards(log),
        ends={
            "terminated": int(log.terminated.sum()),
            "truncated": int((log.truncated & ~log.terminated).sum()),
            "both (terminated wins)": int(notes.get("both_ends", 0)) + int((log.truncated & log.terminated).sum()),
        },
        dt={"unit": log.spec.step, **_quantiles(dt), "other than 1": float((dt != 1).mean())},
        behaviour_known=known,
        missing=dict(notes.get("missing", {})),
        missing_policy=str(notes.get("missing_policy", "")),
        features=features,
        units=dict(notes.get("units", {})),
        split=split,
        warnings=[
            *_log_warnings(log, actions, patients),
            *([few] if patients >= 3 and few else []),
            *_feature_warnings(features),
            *_note_warnings(notes),
        ],
    )


def _blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Some rows at a time: the array may be larger than memory."""
    for start in range(0, len(array), BLOCK):
        yield np.asarray(array[start : start + BLOCK])


def _quantiles(values: np.ndarray) -> dict[str, float]:
    return dict(zip(QUANTILES, (float(q) for q in np.quantile(values, (0, 0.25, 0.5, 0.75, 1))), strict=True))


def _actions(log: Transitions) -> dict[str, Any]:
    spec = log.spec.action
    names = spec.names or tuple(f"decision maker {k}" for k in range(spec.agents))
    if spec.kind == "discrete":
        columns = [np.bincount(log.actions[:, k], minlength=size).tolist() for k, size in enumerate(spec.sizes)]
        return dict(zip(names, columns, strict=True))
    width = spec.width
    return {name: [_quantiles(log.actions[:, k, d]) for d in range(width)] for k, name in enumerate(names)}


def _rewards(log: Transitions) -> dict[str, Any]:
    rewards, returns = np.asarray(log.rewards), log.returns(1.0)
    return {
        "text": log.spec.reward,
        "gamma": log.spec.gamma,
        "min": float(rewards.min()),
        "max": float(rewards.max()),
        "other than 0": float((rewards != 0).mean()),
        "mean return": float(returns.mean()),
        "sd of returns": float(returns.std()),
    }


def _split(log: Transitions) -> dict[str, int]:
    parts = split_by_patient(log, SPLIT, 0)
    return dict(zip(("train", "validation", "held out"), map(len, parts), strict=True))


def _features(log: Transitions, notes: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    spec = log.spec.observation
    if spec.kind == "states":
        counts = np.bincount(np.asarray(log.observations).ravel(), minlength=spec.size)
        return {"states": {"declared": spec.size, "seen": int((counts > 0).sum())}}
    count, total, square = 0, np.zeros(spec.size), np.zeros(spec.size)
    low, high = np.full(spec.size, np.inf), np.full(spec.size, -np.inf)
    shift = np.asarray(log.observations[:1], np.float64).reshape(-1, spec.size)[0]  # keeps the sum of squares exact
    for block in _blocks(log.observations):
        rows = block.reshape(-1, spec.size).astype(np.float64) - shift
        count += len(rows)
        total, square = total + rows.sum(0), square + (rows**2).sum(0)
        low, high = np.minimum(low, rows.min(0)), np.maximum(high, rows.max(0))
    mean = total / count
    sd = np.sqrt(np.maximum(square / count - mean**2, 0))
    columns = np.stack([low + shift, *_middle(log.observations, spec.size), high + shift, mean + shift, sd], 1).tolist()
    names = spec.names or tuple(f"feature {k}" for k in range(spec.size))
    found = {n: dict(zip((*QUANTILES, "mean", "sd"), c, strict=True)) for n, c in zip(names, columns, strict=True)}
    missing = notes.get("missing", {})
    if notes and missing.keys() <= found.keys():  # else the schema renamed columns
        for name, values in found.items():
            values["missing"] = missing.get(name, 0) / notes["rows"]
    return found


def _middle(observations: np.ndarray, size: int) -> np.ndarray:
    """(3, F): p25, median, p75."""
    step = -(-len(observations) // MOST_ROWS)
    # (n, ...) -> (n', F)
    return np.quantile(np.asarray(observations[::step]).reshape(-1, size), (0.25, 0.5, 0.75), axis=0)


def _log_warnings(log: Transitions, actions: Mapping[str, Any], patients: int) -> list[str]:
    found = []
    if log.spec.action.kind == "discrete":
        for name, counts in actions.items():
            if never := [k for k, count in enumerate(counts) if not count]:
                share = f"{len(never)} of {len(counts)}"
                found.append(f"{name}: {share} declared actions were never taken: {never[:12]}")
    taken = np.asarray(log.actions)
    if (taken == taken[:1]).all():
        found.append("all logged actions are equal: training will refuse this log")
    if (log.rewards == log.rewards[:1]).all():
        found.append("the reward is constant: only how long an episode lasts can tell policies apart")
    if (log.lengths == 1).all():
        found.append("every row is the end of its episode: is the column of ends the right one?")
    if not log.terminated.any():
        found.append("no episode terminates: every value is a guess beyond the cut")
    if patients < 3:
        found.append("fewer than 3 patients: no split by patient is possible")
    return found


def few_held_out(episodes: int, held_out: int, share: float) -> str:
    """Said where too few are held out for any estimate by weights; "" where there are enough. `share`: of all."""
    if held_out >= LEAST_ESS or share == 0:
        return ""
    return (
        f"{held_out} of {episodes} episodes are held out: no estimate by weights can be supported, as each needs an "
        f"effective sample of {LEAST_ESS:g} of them; log {LEAST_ESS / share:.0f} or more"
    )


def _feature_warnings(features: Mapping[str, Mapping[str, float]]) -> list[str]:
    found = []
    for name, seen in features.items():
        if "sd" not in seen:
            continue
        if seen["min"] == seen["max"]:
            found.append(f"{name} never changes ({seen['min']:g})")
        if max(abs(seen["min"]), abs(seen["max"])) > WILD:
            found.append(f"{name}: wild scale, {seen['min']:.3g} ... {seen['max']:.3g}")
    return found


def _note_warnings(notes: Mapping[str, Any]) -> list[str]:
    found = []
    if both := notes.get("both_ends"):
        found.append(f"{both} episodes are both terminated and truncated: they count as terminated")
    if unmarked := notes.get("unmarked_ends"):
        found.append(f"{unmarked} episodes stop without being terminated or truncated: they count as truncated")
    if dropped := notes.get("dropped_decisions"):
        lost = notes.get("dropped_rewards", 0)
        found.append(
            f"the last decision of {dropped} cut episodes is left out: no observation follows it"
            + (f" ({lost} of them had a reward)" if lost else "")
        )
    if episodes := notes.get("dropped_episodes"):
        found.append(f"{episodes} episodes had no decision left and are left out")
    return found
