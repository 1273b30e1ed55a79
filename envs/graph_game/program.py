"""Writing down a linear or mixed-integer program block by block, and having HiGHS solve it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_matrix

Term = tuple[np.ndarray | float, np.ndarray]
"""Coefficients and the variables they belong to, of one shape with the block of rows (broadcast)."""
TIMED_OUT = 1


@dataclass(frozen=True)
class Solved:
    """Of a program that is maximised."""

    bound: float
    """No feasible point is worth more."""
    value: float
    """Of the point found; -inf where none was."""
    point: np.ndarray
    """(variables,); empty where none was found."""


class Program:
    """Maximise gain @ x, rows <= or = limits, lower <= x <= upper."""

    def __init__(self) -> None:
        self.gain: list[np.ndarray] = []
        self.lower: list[np.ndarray] = []
        self.upper: list[np.ndarray] = []
        self.whole: list[np.ndarray] = []
        self.count = 0
        self.entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self.limits: list[np.ndarray] = []
        self.equals: list[np.ndarray] = []
        self.row_count = 0

    def variables(
        self,
        shape: tuple[int, ...],
        *,
        gain: np.ndarray | float = 0.0,
        lower: np.ndarray | float = 0.0,
        upper: np.ndarray | float = np.inf,
        whole: bool = False,
    ) -> np.ndarray:
        """Indices of new variables, in that shape; `whole` ones are integers unless the program is relaxed."""
        index = np.arange(self.count, self.count + int(np.prod(shape))).reshape(shape)
        self.count += index.size
        for kept, value in ((self.gain, gain), (self.lower, lower), (self.upper, upper), (self.whole, float(whole))):
            kept.append(np.broadcast_to(value, shape).astype(np.float64).ravel())
        return index

    def at_most(
        self, terms: list[Term], limit: np.ndarray | float, shape: tuple[int, ...], *, equal: bool = False
    ) -> np.ndarray:
        """One row for each place of `shape`: the sum of the terms there <= the limit there, or equals it.

        Returns the rows' numbers, in that shape.
        """
        rows = np.arange(self.row_count, self.row_count + int(np.prod(shape))).reshape(shape)
        for coefficient, variable in terms:
            self.add_to_rows(rows, coefficient, variable)
        self.limits.append(np.broadcast_to(limit, shape).astype(np.float64).ravel())
        self.equals.append(np.full(rows.size, equal))
        self.row_count += rows.size
        return rows

    def add_to_rows(self, rows: np.ndarray, coefficient: np.ndarray | float, variable: np.ndarray) -> None:
        """More entries of these rows; the three are broadcast against each other."""
        parts = np.broadcast_arrays(rows, coefficient, variable)
        self.entries.append((parts[0].ravel(), parts[1].astype(np.float64).ravel(), parts[2].ravel()))

    def _matrix(self) -> tuple[csr_matrix, np.ndarray, np.ndarray]:
        """Coefficients, limits, and which rows are equations."""
        row, value, column = (np.concatenate(parts) for parts in zip(*self.entries, strict=True))
        matrix = csr_matrix((value, (row, column)), (self.row_count, self.count))
        return matrix, np.concatenate(self.limits), np.concatenate(self.equals)

    def relaxed(self, method: str = "highs-ipm") -> Solved:
        """Solved with whole variables as real ones. Raises RuntimeError when the solver fails."""
        matrix, limits, equal = self._matrix()
        bounds = np.stack([np.concatenate(self.lower), np.concatenate(self.upper)], 1)
        gain = -np.concatenate(self.gain)
        at_most, equals = (matrix[~equal], limits[~equal]), (matrix[equal], limits[equal])
        solved = linprog(gain, *at_most, *equals, bounds, method=method)
        if solved.status != 0:
            raise RuntimeError(f"linear program: {solved.message}")
        return Solved(-solved.fun, -solved.fun, solved.x)

    def whole_numbered(self, time_limit_s: float, gap: float = 1e-6) -> Solved:
        """Solved with integers, for at most that long. Raises RuntimeError when the solver fails."""
        matrix, limits, equal = self._matrix()
        solved = milp(
            -np.concatenate(self.gain),
            integrality=np.concatenate(self.whole),
            bounds=Bounds(np.concatenate(self.lower), np.concatenate(self.upper)),
            constraints=LinearConstraint(matrix, np.where(equal, limits, -np.inf), limits),
            options={"time_limit": time_limit_s, "mip_rel_gap": gap},
        )
        if solved.status not in (0, TIMED_OUT) or solved.mip_dual_bound is None:
            raise RuntimeError(f"mixed-integer program: {solved.message}")
        if solved.x is None:
            return Solved(-solved.mip_dual_bound, -np.inf, np.zeros(0))
        return Solved(-solved.mip_dual_bound, -solved.fun, solved.x)
