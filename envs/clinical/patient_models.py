"""ICU-Sepsis and the sepsis structural causal model as one patient each (envs/clinical/patient.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from refork.envs.clinical.icu_sepsis import DEATH, SURVIVAL, IcuSepsis, tables
from refork.envs.clinical.patient import PatientModel, gumbel
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.clinical.sepsis_scm_sampling import NOISE, next_states


def icu_sepsis(factored: bool = False) -> PatientModel:
    """`factored`: fluids and vasopressor are chosen apart. Raises BadInput when the package is not installed."""
    simulator, t = IcuSepsis(factored), tables()
    states = np.arange(len(t.start))
    return PatientModel(
        identity={"env": simulator.spec.env},
        start=t.start,
        rewards=(states == SURVIVAL).astype(float),
        ends=states >= DEATH,
        shown=states,
        features=t.features,
        names=simulator.spec.observation.names,
        sizes=simulator.spec.action.sizes,
        horizon=0,
        noise=len(states),
        lead=_icu_lead,
    )


def _icu_lead(state: int, action: int, noise: np.ndarray) -> int:
    row = tables().transitions[state, action]
    possible = np.flatnonzero(row)
    return int(possible[(np.log(row[possible]) + gumbel(noise[possible])).argmax()])


def sepsis_scm(
    hide: Sequence[str] = ("diabetes",), published_glucose: bool = False, factored: bool = False
) -> PatientModel:
    """Options as of SepsisScm."""
    simulator = SepsisScm(hide, published_glucose, factored=factored)

    def lead(state: int, action: int, noise: np.ndarray) -> int:
        return int(next_states(np.array([state]), np.array([action]), gumbel(noise), published_glucose)[0])

    return PatientModel(
        identity={"env": simulator.spec.env, "published_glucose": str(published_glucose)},
        start=simulator.model.start,
        rewards=simulator.model.rewards,
        ends=simulator.model.ends,
        shown=simulator.shown,
        features=simulator.features.astype(np.float32),
        names=simulator.spec.observation.names,
        sizes=simulator.spec.action.sizes,
        horizon=simulator.spec.horizon,
        noise=NOISE,
        lead=lead,
    )
