"""Who acted, as a model of the log: cross-fitted by patient and smoothed, so that no logged action is impossible.

Of vectors: a network, stopped where the patients it did not learn from are likeliest. Of states: shares of actions in
each, shrunk to what a network on their features says (without features: to the shares of the log) as strongly as makes
left-out decisions likeliest. Decision makers are taken as independent given what is seen; continuous actions as normal
around the network's mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act
from refork.replay.ope.calibration import Calibration, calibration
from refork.replay.transitions import Transitions, split_by_patient
from refork.trainers.behaviour_network import fit_network
from refork.trainers.fqe_problem import Problem

STRENGTHS = 10.0 ** np.arange(-1, 3.01, 0.25)
"""How many decisions the log's own shares count for in a state: what is tried."""


@dataclass(frozen=True)
class Behaviour:
    """A cross-fitted model of who acted."""

    kind: str
    """In words."""
    logged: np.ndarray
    """(N,): probability (density) of each logged joint action, from a fold without its patient."""
    probabilities: np.ndarray | None
    """(N, n, width) in the same way, of discrete actions; None: continuous ones."""
    calibration: tuple[Calibration, ...]
    """Of each decision maker; () for continuous ones."""
    nll: float
    """Mean -log of `logged`, nats a decision."""


def fit_behaviour(log: Transitions, folds: int = 3, seed: int = 0, smooth: bool = True) -> Behaviour:
    """`smooth` False: plain shares of counts, to show what they do (states only). Raises BadInput for an empty log."""
    if not len(log):
        raise BadInput("behaviour policy: the log has no transitions")
    problem = Problem(log, 1.0, 0)
    parts = [log.steps_of(part) for part in split_by_patient(log, [1] * folds, seed) if len(part)]
    if log.spec.action.kind == "continuous":
        return _continuous(problem, parts, seed)
    if problem.by_state:
        found = _counted(problem, parts, smooth, seed)
        kind = "cross-fitted smoothed shares of actions in each state" if smooth else "unsmoothed shares of actions"
    else:
        found, kind = _regressed(problem, parts, seed), "a cross-fitted network"
    logged = problem.actions.probability(found, log.actions)
    tables = tuple(
        calibration(found[:, i, :size], np.asarray(log.actions[:, i])) for i, size in enumerate(log.spec.action.sizes)
    )
    with np.errstate(divide="ignore"):
        return Behaviour(kind, logged, found, tables, float(-np.log(logged).mean()))


def clone(log: Transitions, seed: int = 0) -> Act:
    """The whole log's behaviour as a policy: behaviour cloning. Of continuous actions the mean."""
    problem = Problem(log, 1.0, 0)
    if log.spec.action.kind == "discrete" and problem.by_state:
        table = _tables(problem, np.arange(len(log)), True, seed)
        return lambda observations, _allowed: table[observations]
    return fit_network(log, np.arange(len(log)), seed).act


def _counted(problem: Problem, parts: Sequence[np.ndarray], smooth: bool, seed: int) -> np.ndarray:
    log = problem.log
    found = np.zeros((len(log), log.spec.action.agents, log.spec.action.width))
    for number, part in enumerate(parts):
        tables = _tables(problem, _others(log, parts, part), smooth, seed + number)
        found[part] = tables[problem.keys[problem.rows[part]]]
    return found


def _tables(problem: Problem, transitions: np.ndarray, smooth: bool, seed: int) -> np.ndarray:
    """(U, n, width): shares of every decision maker's actions in each state."""
    log, states = problem.log, np.arange(problem.distinct)
    prior = None
    if smooth and log.state_features is not None:
        prior = fit_network(log, transitions, seed).act(states)
    found = np.zeros((len(states), log.spec.action.agents, log.spec.action.width))
    for i, size in enumerate(log.spec.action.sizes):
        own = None if prior is None else prior[:, i, :size]
        found[:, i, :size] = _shares(problem, transitions, i, own, smooth)
    return found


def _shares(
    problem: Problem, transitions: np.ndarray, maker: int, prior: np.ndarray | None, smooth: bool
) -> np.ndarray:
    """(U, A) of one decision maker, shrunk to `prior` (U, A), or to the shares of the log."""
    size = problem.log.spec.action.sizes[maker]
    states, actions = problem.keys[problem.rows[transitions]], np.asarray(problem.log.actions)[transitions, maker]
    counts = np.bincount(states * size + actions, minlength=problem.distinct * size).reshape(-1, size).astype(float)
    visits = counts.sum(1, keepdims=True)
    if not smooth:
        return counts / np.maximum(visits, 1)
    if prior is None:
        prior = np.broadcast_to((counts.sum(0) + 1) / (counts.sum() + size), counts.shape)
    strength = _best_strength(counts[states, actions], visits[states, 0], prior[states, actions])
    return (counts + strength * prior) / (visits + strength)


def _best_strength(own: np.ndarray, visits: np.ndarray, prior: np.ndarray) -> float:
    """The one under which each decision is likeliest when it is left out of the counts itself."""
    likely = [np.log((own - 1 + k * prior) / (visits - 1 + k)).mean() for k in STRENGTHS]
    return float(STRENGTHS[int(np.argmax(likely))])


def _regressed(problem: Problem, parts: Sequence[np.ndarray], seed: int) -> np.ndarray:
    log = problem.log
    found = np.zeros((len(log), log.spec.action.agents, log.spec.action.width))
    for number, part in enumerate(parts):
        network = fit_network(log, _others(log, parts, part), seed + number)
        rows = problem.rows[part]
        allowed = None if log.allowed is None else np.asarray(log.allowed[rows])
        found[part] = network.act(np.asarray(log.observations[rows]), allowed)
    return found


def _continuous(problem: Problem, parts: Sequence[np.ndarray], seed: int) -> Behaviour:
    log, density = problem.log, np.zeros(len(problem.log))
    for number, part in enumerate(parts):
        network = fit_network(log, _others(log, parts, part), seed + number)
        density[part] = network.density(np.asarray(log.observations[problem.rows[part]]), np.asarray(log.actions[part]))
    with np.errstate(divide="ignore"):
        nll = float(-np.log(density).mean())
    return Behaviour("a cross-fitted network, normal around its mean", density, None, (), nll)


def _others(log: Transitions, parts: Sequence[np.ndarray], part: np.ndarray) -> np.ndarray:
    return np.setdiff1d(np.arange(len(log)), part) if len(parts) > 1 else part
