"""How well rules that see a log alone choose among policies planned on it: part of the study of estimators."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from refork.envs.clinical.icu_sepsis import IcuSepsis
from refork.replay.transitions import Transitions, of, split_by_patient
from refork.scripts.bench.ope_cases import act_of
from refork.trainers import fqe
from refork.trainers.pvi.counts import Counts, count, shrunk_values

SIZES = (500, 2500, 10_000)
SETTINGS: tuple[dict[str, Any], ...] = (
    *({"shrinkage": s, "least": m} for s in (0.0, 1.0, 10.0, 100.0, 1000.0) for m in (0, 5)),
    *({"penalty": c, "least": 1} for c in (0.01, 0.03, 0.1, 0.3)),
)
RULES: Mapping[str, tuple[str, str]] = {
    "FQE table, validation": ("table", "validation"),
    "FQE shrunk table, validation": ("shrunk table", "validation"),
    "FQE linear, validation": ("linear", "validation"),
    "FQE table, cross-fitted on both": ("table", "both"),
    "FQE shrunk table, cross-fitted on both": ("shrunk table", "both"),
    "FQE shrunk table, fitted on training": ("shrunk table", "training"),
}
"""Method, and the episodes that it is fitted on: the last is what not to do."""


def planned(counts: Counts, shrinkage: float = 0.0, penalty: float = 0.0, least: int = 0) -> np.ndarray:
    """(S, A): the greedy policy of 100 sweeps on a counted model."""
    often = counts.seen >= least
    taken = often | ~often.any(1, keepdims=True)
    lowered = penalty / np.sqrt(np.maximum(counts.seen + shrinkage, 1.0))
    q = np.zeros(taken.shape)
    for _ in range(100):
        q = shrunk_values(counts, np.where(taken, q, -np.inf).max(1), shrinkage, 1.0) - lowered
    return np.eye(counts.actions)[np.where(taken, q, -np.inf).argmax(1)]


def run(episodes: int, seed: int) -> dict[str, Any]:
    """One log: estimates of every planned policy by every rule, and the true values."""
    torch.set_num_threads(1)
    begun = time.process_time()
    simulator = IcuSepsis()
    log = of(simulator.log("expert", episodes, 100 + seed))
    parts = split_by_patient(log, [0.8, 0.2], seed)
    training, validation = (log.subset(part) for part in parts)
    counts = count(training, np.arange(len(training)), 1.0)
    acts = [act_of(planned(counts, **setting)) for setting in SETTINGS]
    shown: dict[str, tuple[Transitions, int]] = {
        "validation": (validation, 1),
        "both": (log, 2),
        "training": (training, 1),
    }
    found = {}
    for rule, (method, where) in RULES.items():
        own, folds = shown[where]
        found[rule] = [f.value for f in fqe.evaluate(own, acts, 1.0, method=method, folds=folds, seed=seed)]
    truth = [simulator.truth(act).value for act in acts]
    return {"truth": truth, "found": found, "cpu_s": time.process_time() - begun}
