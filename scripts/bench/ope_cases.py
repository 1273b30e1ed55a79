"""What the study of off-policy estimators is run on: simulators whose values are exact, their logs and policies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from refork.cluster.log_doses import channels
from refork.envs.log_spec import Act, Simulator
from refork.envs.simulators import open_simulator
from refork.replay.ope.clusters import cluster_ratios, magnitudes
from refork.replay.ope.estimate import Estimate, Evidence, estimates, observed_return
from refork.replay.transitions import of
from refork.trainers import fqe
from refork.trainers.behaviour_model import fit_behaviour

RESAMPLES = 200


@dataclass(frozen=True)
class Case:
    """A simulator, who wrote its logs, and how long they are."""

    name: str
    env: str
    options: Mapping[str, Any]
    behaviour: str
    episodes: tuple[int, ...]


CASES = (
    Case("icu_sepsis", "refork/IcuSepsis-v0", {}, "expert", (500, 2500, 10_000)),
    Case("sepsis_scm", "refork/SepsisSCM-v0", {"hide": []}, "confounded", (500, 2500)),
)
"""The SCM shows its whole state and diabetes changes nothing: nothing is confounded, the clinician errs by 30 %."""


def tables_of(simulator: Simulator) -> dict[str, np.ndarray]:
    """Policies to evaluate, (states, A) each: what the simulator has, mixtures, single actions; spread in value."""
    states = np.arange(simulator.spec.observation.size)
    found = {}
    for name in simulator.behaviours:
        if (act := simulator.policy(name)) is not None:
            found[name.replace("confounded", "clinician")] = act(states, None)[:, 0]
    actions = simulator.spec.action.width
    optimal, random = found["optimal"], np.full((len(states), actions), 1 / actions)
    logged = found.get("expert", found.get("clinician", random))
    return {
        **found,
        "half optimal": 0.5 * optimal + 0.5 * logged,
        "eighth optimal": 0.125 * optimal + 0.875 * logged,
        "optimal, 30 % random": 0.7 * optimal + 0.3 * random,
        "commonest": np.eye(actions)[logged.argmax(1)],
        "most treatment": np.tile(np.eye(actions)[-1], (len(states), 1)),
    }


def act_of(table: np.ndarray) -> Act:
    return lambda states, _allowed: table[states][:, None]


def run(case: Case, episodes: int, seed: int) -> dict[str, Any]:
    """One log: every estimate of every policy, and the true values."""
    torch.set_num_threads(1)
    begun = time.process_time()
    simulator = open_simulator(case.env, case.options)
    log = of(simulator.log(case.behaviour, episodes, seed))
    tables = tables_of(simulator)
    acts = [act_of(table) for table in tables.values()]
    methods = [m for m in (*fqe.METHODS, "shrunk table") if m not in fqe.undefined(log)]
    models = {m: fqe.evaluate(log, acts, 1.0, method=m, seed=seed, resamples=RESAMPLES) for m in methods}
    modelled = fit_behaviour(log, seed=seed)
    assert modelled.probabilities is not None
    rows = np.asarray(log.observations)[log.rows(np.arange(len(log)))]
    shown = magnitudes(channels(log.spec).sizes)  # type: ignore[union-attr]
    found: dict[str, Any] = {}
    for k, (name, table) in enumerate(tables.items()):
        policy = table[rows]
        chosen = policy[np.arange(len(log)), log.actions[:, 0]]
        clusters = cluster_ratios(policy, modelled.probabilities[:, 0], log.actions[:, 0], shown)
        own = {m: f[k].model for m, f in models.items()}
        said = _said(Evidence(log, 1.0, np.asarray(log.behaviour, np.float64), chosen, own, clusters), seed)
        again = _said(Evidence(log, 1.0, modelled.logged, chosen, own, None), seed)
        said |= {f"{n}, modelled": e for n, e in again.items() if not n.startswith(("FQE", "OffCEM"))}
        found[name] = {"observed return": _row(observed_return(log, 1.0, seed, RESAMPLES))} | said
    truth = {name: simulator.truth(act).value for name, act in zip(tables, acts, strict=True)}
    return {"truth": truth, "found": found, "cpu_s": time.process_time() - begun}


def _said(evidence: Evidence, seed: int) -> dict[str, Any]:
    return {e.estimator: _row(e) for e in estimates(evidence, seed, RESAMPLES, plain=True)}


def _row(found: Estimate) -> dict[str, Any]:
    return {"value": found.value, "low": found.low, "high": found.high, "status": found.status}
