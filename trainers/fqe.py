"""Fitted Q evaluation (arXiv 1903.08738): what policies are worth, estimated from a log alone, and how far to trust it.

An estimate under a model: the regression extrapolates wherever a policy does what the log does not show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from refork.envs.forkable import BadInput
from refork.envs.log_spec import Act
from refork.replay.ope.estimate import NOT_CONVERGED, OUT_OF_BOUNDS, ModelValues
from refork.replay.transitions import Transitions, split_by_patient
from refork.trainers.fqe_iteration import Evaluated, iterate
from refork.trainers.fqe_network import evaluate_by_network
from refork.trainers.fqe_problem import Problem
from refork.trainers.fqe_refit import refitted
from refork.trainers.fqe_regressors import Linear, Regressor, ShrunkTable, Table, Trees
from refork.trainers.fqe_stack import NetworkSettings

REGRESSORS: dict[str, type[Regressor]] = {"table": Table, "linear": Linear, "tree": Trees, "shrunk table": ShrunkTable}
METHODS = ("table", "linear", "tree", "network")
"""Those that values are stated by."""


@dataclass(frozen=True)
class FQE:
    """One policy, evaluated by one method."""

    method: str
    starts: np.ndarray
    """(E,): value at the first row of each episode, from the fold that did not learn from its patient."""
    q: np.ndarray
    """(N,): Q of each logged action, in the same way."""
    v: np.ndarray
    """(R,): V of each row under the policy."""
    curves: tuple[tuple[tuple[int, float], ...], ...]
    """A fold: iteration or gradient step, and the mean start value then."""
    converged: bool
    td_rms: float
    """Root mean square of r + gamma V(s') - Q(s, a)."""
    td_mean: float
    """Its mean: far from 0, the regression does not fit."""
    held_out: bool
    """The two were measured on patients that were not learnt from."""
    lowest: float
    """1st percentile of all values."""
    highest: float
    """99th."""
    bounds: tuple[float, float]
    """What values can be: the least and greatest reward over (1 - gamma), or over the steps there can be."""
    plausible: tuple[float, float]
    """The range of returns to go in the log, widened by half to either side."""
    resampled: np.ndarray | None = None
    """(resamples,): the value, refitted to patients drawn with replacement; None: not asked for, or no table."""

    @property
    def value(self) -> float:
        return float(self.starts.mean())

    @property
    def in_bounds(self) -> bool:
        """Within what values can be, a hundredth of its range aside, and within half a range of the returns seen."""
        slack = 0.01 * (self.bounds[1] - self.bounds[0]) + 1e-9
        low, high = max(self.bounds[0] - slack, self.plausible[0]), min(self.bounds[1] + slack, self.plausible[1])
        return low <= self.lowest and self.highest <= high

    @property
    def trusted(self) -> bool:
        """It converged, to numbers within what values can be."""
        return self.converged and self.in_bounds and bool(np.isfinite(self.starts).all())

    @property
    def model(self) -> ModelValues:
        """As estimators take it."""
        why_not = OUT_OF_BOUNDS if self.converged else NOT_CONVERGED
        return ModelValues(self.starts, self.q, self.v, self.trusted, self.resampled, why_not)


def undefined(log: Transitions) -> dict[str, str]:
    """Methods that this log does not allow, and why."""
    problem = Problem(log, 1.0, 0)
    if not problem.actions.count:
        why = "continuous actions" if log.spec.action.kind == "continuous" else "too many joint actions to list"
        return dict.fromkeys(REGRESSORS, why)
    found = {}
    if not problem.by_state:
        why = "observations are not states" if log.allowed is None else "what is allowed differs by row"
        found["table"] = found["shrunk table"] = why
    if problem.features is None:
        found["linear"] = "nothing is known of the states but their numbers"
    return found


def default_method(log: Transitions) -> str:
    """Tables where they are defined; otherwise networks."""
    return "network" if "table" in undefined(log) else "table"


def evaluate(
    log: Transitions,
    acts: Sequence[Act],
    gamma: float,
    *,
    method: str = "auto",
    folds: int = 2,
    seed: int = 0,
    network: NetworkSettings | None = None,
    resamples: int = 0,
) -> list[FQE]:
    """Evaluate policies on `log`. With several folds (by patient) an episode's values never come from its own patient.

    Values are of the log's horizon. `resamples`: how often tables are refitted to bootstrapped patients. Raises
    BadInput for a method that is not defined for this log, naming why.
    """
    if not len(log):
        raise BadInput("FQE: the log has no transitions")
    method = default_method(log) if method == "auto" else method
    if method not in (*REGRESSORS, "network"):
        raise BadInput(f"FQE: no method {method!r}; there are: {', '.join((*REGRESSORS, 'network'))}")
    if why := undefined(log).get(method):
        raise BadInput(f"FQE by {method}: not defined for this log: {why}")
    problem = Problem(log, gamma, log.spec.horizon)
    parts = [part for part in split_by_patient(log, [1] * folds, seed) if len(part)] if folds > 1 else []
    learnt = [log.steps_of(np.setdiff1d(np.arange(log.episodes), part)) for part in parts]
    if len(parts) < 2 or not all(len(steps) for steps in learnt):
        parts, learnt = [np.arange(log.episodes)], [np.arange(len(log))]
    if method == "network":
        by_network = evaluate_by_network(problem, acts, learnt, network or NetworkSettings(), seed)
        return [_merged(problem, method, parts, own) for own in by_network]
    regressors = [REGRESSORS[method](problem, steps, seed) for steps in learnt]
    found = []
    for act in acts:
        probabilities = problem.probabilities(act)
        own = [iterate(problem, probabilities, r, s) for r, s in zip(regressors, learnt, strict=True)]
        merged = _merged(problem, method, parts, own)
        if resamples and method == "table":
            tables = [r for r in regressors if isinstance(r, Table)]
            values = [e.values for e in own if e.values is not None]
            again = refitted(problem, probabilities, parts, learnt, tables, values, resamples, seed)
            merged = replace(merged, resampled=again)
        found.append(merged)
    return found


def _merged(problem: Problem, method: str, parts: Sequence[np.ndarray], found: Sequence[Evaluated]) -> FQE:
    """Of every episode what the fold says that did not learn from it."""
    log = problem.log
    q, v = np.zeros(len(log)), np.zeros(len(log.observations))
    for part, own in zip(parts, found, strict=True):
        steps = log.steps_of(part)
        q[steps] = own.q[steps]
        rows = np.union1d(problem.rows[steps], problem.rows[steps] + 1)
        v[rows] = own.v[rows]
    residual = problem.rewards + problem.discounts * v[problem.rows + 1] - q
    values = np.concatenate([q, v])
    return FQE(
        method,
        v[problem.first_rows],
        q,
        v,
        tuple(own.curve for own in found),
        all(own.converged for own in found),
        float(np.sqrt(np.mean(residual**2))),
        float(residual.mean()),
        len(parts) > 1,
        float(np.quantile(values, 0.01)),
        float(np.quantile(values, 0.99)),
        value_bounds(problem),
        problem.plausible,
    )


def value_bounds(problem: Problem) -> tuple[float, float]:
    """[r_min, r_max] / (1 - gamma); with gamma 1 or a horizon, over the horizon or the longest episode."""
    low, high = min(0.0, float(problem.rewards.min())), max(0.0, float(problem.rewards.max()))
    steps = problem.horizon or int(problem.log.lengths.max())
    gamma = problem.gamma ** float(np.min(problem.log.dt))
    if problem.horizon or gamma == 1:
        reach = float(steps) if gamma == 1 else (1 - gamma**steps) / (1 - gamma)
    else:
        reach = 1 / (1 - gamma)
    return low * reach, high * reach
