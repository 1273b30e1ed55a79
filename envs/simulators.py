"""Simulators that write logs, by the id of their environment."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, validate_call
from refork.envs.forkable import BadInput, first_fault
from refork.envs.log_spec import Simulator

SIMULATORS = {
    "refork/SyntheticCohort-v0": "refork.envs.clinical.cohort:SyntheticCohort",
    "refork/IcuSepsis-v0": "refork.envs.clinical.icu_sepsis:IcuSepsis",
    "refork/SepsisSCM-v0": "refork.envs.clinical.sepsis_scm:SepsisScm",
    "refork/ConfoundedClinic-v0": "refork.envs.clinical.confounded_clinic:ConfoundedClinic",
    "refork/EqualLine-v0": "refork.envs.multi.equal_line:EqualLine",
    "refork/Particles-v0": "refork.envs.multi.navigation:ParticlesSimulator",
}


def open_simulator(env_id: str, options: Mapping[str, Any]) -> Simulator:
    """Raises BadInput for an unknown id or option, or when the package it needs is not installed."""
    if env_id not in SIMULATORS:
        raise BadInput(f"no simulator {env_id!r}; there are: {', '.join(SIMULATORS)}")
    module, _, name = SIMULATORS[env_id].partition(":")
    kind = getattr(importlib.import_module(module), name)
    simulator: Simulator = kind.__new__(kind)
    try:
        validate_call(kind.__init__)(simulator, **options)  # by its annotations: "yes" is no number of steps
    except ValidationError as error:
        known = ", ".join(inspect.signature(kind).parameters) or "none"
        raise BadInput(f"options of {env_id}: {first_fault(error)}; there are: {known}") from error
    return simulator
