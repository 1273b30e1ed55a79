"""What the repair policy sees: one row of numbers per action. Everything the state holds and the policy needs is in it.

The policy is a memoryless network over the rows, so what is known of the whole (failing tests, steps left, the last
result) stands in every row. Columns are in about [-3, 3].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from refork.envs.swe.localise import Spectrum, competition_ranks
from refork.envs.swe.menu import NOT_IN_TRACEBACK, Item
from refork.envs.swe.repair_operators import OPERATOR_NAMES

KINDS = ("edit", "undo", "run", "neighbourhood", "submit")
EDIT = (
    "score",
    "log_rank",
    "log_place",
    "inverse_place",
    "share_failing",
    "share_passing",
    "in_traceback",
    "raised_here",
    "near_raise",
    "depth",
    "size",
    "same_line",
    "natural",
    "natural_here",
    "natural_place",
)
TRIAL = ("tried", "gain", "solved", "no_gain", "tried_before", "gain_before")
ERRORS = ("Assertion", "Type", "Attribute", "Lookup", "Value", "Name", "Limit", "other", "none")
WHOLE = (
    "failing_left",
    "log_failing",
    "unrun",
    "pending",
    "edits",
    "steps_left",
    "few_left",
    "clean",
    "improved",
    "not_improved",
    "neighbours_known",
    "neighbours_broken",
    "tried_count",
)
FEATURES = (
    "prior",
    *(f"kind_{kind}" for kind in KINDS),
    *EDIT,
    *(f"operator_{name}" for name in OPERATOR_NAMES),
    *TRIAL,
    *WHOLE,
    *(f"error_{name}" for name in ERRORS),
)
"""Names of the columns. `prior` is a hand-made logit: try what Ochiai ranks first, run, take back what did not help."""
COLUMN = {name: i for i, name in enumerate(FEATURES)}
ERROR_CLASSES = {
    "AssertionError": "Assertion",
    "Failed": "Assertion",
    "TypeError": "Type",
    "AttributeError": "Attribute",
    "IndexError": "Lookup",
    "KeyError": "Lookup",
    "StopIteration": "Lookup",
    "ValueError": "Value",
    "NameError": "Name",
    "UnboundLocalError": "Name",
    "ImportError": "Name",
    "RecursionError": "Limit",
    "MemoryError": "Limit",
    "OutOfTime": "Limit",
    "": "none",
}


@dataclass(frozen=True)
class Whole:
    """What is known of the episode as a whole; counts are of the tests that failed at the start."""

    tests: int
    base_failing: int
    """Failing in the last workspace that was run, on the way to the current one."""
    failing: int | None
    """Failing in the current workspace; None: not run there."""
    before: int | None
    """Failing one edit earlier, or at the last run before it; None at the start."""
    broken: int | None
    pending: int
    edits: int
    steps_left: int
    max_steps: int
    tried: int

    @property
    def clean(self) -> bool:
        return self.failing == 0

    @property
    def improved(self) -> bool:
        return self.failing is not None and self.before is not None and self.failing < self.before

    def row(self) -> dict[str, float]:
        known = self.failing is not None
        return {
            "failing_left": self.base_failing / max(1, self.tests),
            "log_failing": float(np.log1p(self.base_failing)) / 4,
            "unrun": float(not known),
            "pending": self.pending / 3,
            "edits": self.edits / 4,
            "steps_left": self.steps_left / max(1, self.max_steps),
            "few_left": min(self.steps_left, 4) / 4,
            "clean": float(self.clean),
            "improved": float(self.improved),
            "not_improved": float(known and self.before is not None and not self.improved),
            "neighbours_known": float(self.broken is not None),
            "neighbours_broken": float(bool(self.broken)),
            "tried_count": self.tried / 8,
        }


@dataclass(frozen=True)
class Trial:
    """What came of an item when it was tried: share of the failing tests it made pass, here and on an earlier base."""

    gain: float | None = None
    gain_before: float | None = None


def static_rows(items: Sequence[Item], spectrum: Spectrum, size: int) -> np.ndarray:
    """(size + 4, F) float32: all that a menu fixes; rows without an item are zero but for their kind."""
    rows = np.zeros((size + len(KINDS) - 1, len(FEATURES)), dtype=np.float32)
    rows[:size, COLUMN["kind_edit"]] = 1
    for i, kind in enumerate(KINDS[1:]):
        rows[size + i, COLUMN[f"kind_{kind}"]] = 1
    for name, share in error_shares(spectrum).items():
        rows[:, COLUMN[f"error_{name}"]] = share
    per_line = Counter(item.line for item in items)
    natural = competition_ranks(item.natural for item in items)
    for place, item in enumerate(items):
        for name, value in _edit_features(item, place, per_line[item.line]).items():
            rows[place, COLUMN[name]] = value
        rows[place, COLUMN["natural_place"]] = np.log1p(natural[place] - 1) / 4
    return rows


def _edit_features(item: Item, place: int, same_line: int) -> dict[str, float]:
    in_traceback = item.distance != NOT_IN_TRACEBACK
    return {
        "score": item.score,
        "log_rank": float(np.log1p(item.rank)) / 4,
        "log_place": float(np.log1p(place)) / 4,
        "inverse_place": 1 / (1 + place),
        "share_failing": item.failing,
        "share_passing": item.passing,
        "in_traceback": float(in_traceback),
        "raised_here": float(item.distance == 0),
        "near_raise": 1 / (1 + item.distance) if in_traceback else 0.0,
        "depth": item.candidate.depth / 4,
        "size": min(2.0, (len(item.added) + len(item.removed)) / 100),
        "same_line": same_line / 10,
        "natural": float(np.clip(item.natural / 4, -3, 3)),
        "natural_here": float(np.clip(item.natural_here / 4, -3, 3)),
        f"operator_{item.candidate.operator}": 1.0,
    }


def error_shares(spectrum: Spectrum) -> dict[str, float]:
    """Share of the failing tests by class of exception."""
    failing = spectrum.failing
    classes = Counter(ERROR_CLASSES.get(spectrum.verdicts[test].error, "other") for test in failing)
    return {name: classes[name] / max(1, len(failing)) for name in ERRORS}


def fill(rows: np.ndarray, whole: Whole, trials: dict[int, Trial]) -> np.ndarray:
    """Put what changes from step to step into a copy of `rows`."""
    rows = rows.copy()
    for name, value in whole.row().items():
        rows[:, COLUMN[name]] = value
    for place, trial in trials.items():
        if trial.gain is not None:
            rows[place, COLUMN["tried"]] = 1
            rows[place, COLUMN["gain"]] = trial.gain
            rows[place, COLUMN["solved"]] = trial.gain == 1
            rows[place, COLUMN["no_gain"]] = trial.gain <= 0
        if trial.gain_before is not None:
            rows[place, COLUMN["tried_before"]] = 1
            rows[place, COLUMN["gain_before"]] = trial.gain_before
    rows[:, COLUMN["prior"]] = _prior(rows, whole, trials)
    return rows


def _prior(rows: np.ndarray, whole: Whole, trials: dict[int, Trial]) -> np.ndarray:
    """Logits of a softened Ochiai-greedy policy."""
    size = len(rows) - len(KINDS) + 1
    prior = np.zeros(len(rows), dtype=np.float32)
    prior[:size] = -4 * rows[:size, COLUMN["log_place"]]
    for place, trial in trials.items():
        prior[place] -= 3 * (trial.gain is not None and trial.gain <= 0)
    undo, run, neighbourhood, submit = range(size, size + 4)
    prior[undo] = 4 if rows[0, COLUMN["not_improved"]] else -4
    prior[run] = 4 if whole.edits and whole.failing is None else -4
    prior[neighbourhood] = -4
    prior[submit] = 6 if whole.clean else -4
    return prior
