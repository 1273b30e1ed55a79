"""What fitted Q evaluation regresses with, where joint actions can be listed: tables, linear models, trees.

A regressor is made once for a log, whatever policies are evaluated on it, and turns targets (N,) of its transitions
into values of all distinct observations and joint actions (U, A).
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np
from refork.envs.forkable import BadInput
from refork.trainers.fqe_problem import Problem


class Regressor(Protocol):
    """Made from a Problem and the numbers of the transitions it may learn from."""

    def __init__(self, problem: Problem, transitions: np.ndarray, seed: int = 0) -> None: ...

    def fit(self, targets: np.ndarray) -> np.ndarray:
        """(N,) targets of the transitions -> (U, A), float64."""


class Table:
    """Means of counts, shrunk: an action's to its state's, a state's to that of the log. For logs of states."""

    STRENGTH = 1.0
    """Transitions that what is shrunk to counts for."""

    def __init__(self, problem: Problem, transitions: np.ndarray, seed: int = 0) -> None:
        if not problem.by_state:
            raise BadInput("FQE by tables is for logs of states; this one is of vectors, or states what is allowed")
        self._shape = (problem.distinct, problem.actions.count)
        states = problem.keys[problem.rows[transitions]]
        self._cells = states * self._shape[1] + problem.numbers[transitions]
        self._weigh(np.ones(len(transitions)))

    def _weigh(self, weights: np.ndarray) -> None:
        self._weights = weights
        size = self._shape[0] * self._shape[1]
        self._counts = np.bincount(self._cells, weights, size).reshape(self._shape)
        self._visits = self._counts.sum(1)

    def weighted(self, weights: np.ndarray) -> Table:
        """The same, with transition i counting `weights[i]` times."""
        again = copy.copy(self)
        again._weigh(weights)
        return again

    def fit(self, targets: np.ndarray) -> np.ndarray:
        by_cell = np.bincount(self._cells, self._weights * targets, self._counts.size).reshape(self._shape)
        mean = by_cell.sum() / max(self._counts.sum(), 1e-12)
        of_state = (by_cell.sum(1) + self.STRENGTH * mean) / (self._visits + self.STRENGTH)
        return (by_cell + self.STRENGTH * of_state[:, None]) / (self._counts + self.STRENGTH)


class ShrunkTable(Table):
    """Drawn together more strongly: values of policies move towards each other, but their order is less of noise."""

    STRENGTH = 10.0


class Linear:
    """Ridge regression on the features: a part that all actions share, then each action's deviation from it."""

    RIDGE = 100.0
    """Of the deviations: what fewer transitions than this say is mostly shrunk away."""

    def __init__(self, problem: Problem, transitions: np.ndarray, seed: int = 0) -> None:
        features = problem.features
        if features is None:
            raise BadInput("FQE by linear models needs features, and this log has none of its states; use tables")
        self._all = np.concatenate([np.ones((len(features), 1)), features], 1).astype(np.float64)
        keys, numbers = problem.keys[problem.rows[transitions]], problem.numbers[transitions]
        self._order = np.argsort(numbers, kind="stable")
        self._seen = self._all[keys[self._order]]
        self._cuts = np.searchsorted(numbers[self._order], np.arange(problem.actions.count + 1))
        self._shared = self._solver(self._seen, 1e-3)
        self._own = [self._solver(self._seen[part], self.RIDGE) for part in self._parts()]

    def _parts(self) -> list[slice]:
        return [slice(a, b) for a, b in zip(self._cuts[:-1], self._cuts[1:], strict=True)]

    @staticmethod
    def _solver(seen: np.ndarray, ridge: float) -> np.ndarray:
        return np.linalg.inv(seen.T @ seen + ridge * np.eye(seen.shape[1]))

    def fit(self, targets: np.ndarray) -> np.ndarray:
        targets = targets[self._order]
        shared = self._shared @ (self._seen.T @ targets)
        left = targets - self._seen @ shared
        own = [
            solver @ (self._seen[part].T @ left[part]) for solver, part in zip(self._own, self._parts(), strict=True)
        ]
        return self._all @ (shared[:, None] + np.stack(own, 1))


class Trees:
    """Extremely randomised trees, grown once on rewards and returns to go; then only their leaves' means are renewed.

    An average with fixed weights, so that the iteration is a contraction (Ernst et al. 2005, section 4.4).
    """

    TREES, LEAF = 20, 10
    MOST = 20_000
    """Transitions that the trees are grown on; all of them fill the leaves."""

    def __init__(self, problem: Problem, transitions: np.ndarray, seed: int = 0) -> None:
        try:
            from sklearn.ensemble import ExtraTreesRegressor
        except ImportError:
            raise BadInput("FQE by trees needs scikit-learn: pip install 'refork[clinical]'") from None
        self._shape = (problem.distinct, problem.actions.count)
        inputs = self._inputs(problem)
        some = transitions[np.linspace(0, len(transitions) - 1, min(len(transitions), self.MOST)).astype(np.int64)]
        grown: Any = ExtraTreesRegressor(self.TREES, min_samples_leaf=self.LEAF, random_state=seed)
        goals = np.stack([problem.rewards, problem.returns_to_go], 1)
        grown.fit(inputs[problem.keys[problem.rows[some]], problem.numbers[some]], goals[some])
        leaves = grown.apply(inputs.reshape(-1, inputs.shape[-1])).astype(np.int32)  # (U * A, trees)
        self._leaves = leaves + np.cumsum(
            [0, *(tree.tree_.node_count for tree in grown.estimators_[:-1])], dtype=np.int32
        )
        keys = problem.keys[problem.rows[transitions]]
        self._seen = self._leaves[keys * self._shape[1] + problem.numbers[transitions]]
        self._size = sum(tree.tree_.node_count for tree in grown.estimators_)
        self._counts = np.maximum(np.bincount(self._seen.ravel(), minlength=self._size), 1)

    @staticmethod
    def _inputs(problem: Problem) -> np.ndarray:
        """(U, A, F + action), float32"""
        features = problem.features
        if features is None:
            features = np.arange(problem.distinct, dtype=np.float32)[:, None]
        actions = problem.actions
        numbers = np.arange(actions.count)
        digits = np.stack(np.unravel_index(numbers, actions.spec.sizes), 1)
        described = np.concatenate([np.eye(actions.count), digits], 1).astype(np.float32)
        shape = (len(features), actions.count)
        return np.concatenate(
            [
                np.broadcast_to(features[:, None], (*shape, features.shape[1])),
                np.broadcast_to(described[None], (*shape, described.shape[1])),
            ],
            -1,
        )

    def fit(self, targets: np.ndarray) -> np.ndarray:
        sums = np.bincount(self._seen.ravel(), np.repeat(targets, self._seen.shape[1]), self._size)
        means = sums / self._counts
        return means[self._leaves].mean(1).reshape(self._shape)
