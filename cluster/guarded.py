"""Guarded policies out of a run: from its checkpoint, or from the one file that is carried to where decisions are made.

>>> from refork.cluster.guarded import export_guarded, load_guarded  # doctest: +SKIP
>>> export_guarded(Path("runs/sepsis-20260101"))  # once, where the log is  # doctest: +SKIP
>>> guarded = load_guarded(Path("runs/sepsis-20260101"), vetoes=Path("vetoes.jsonl"))  # doctest: +SKIP
>>> guarded.act(history=[{"HR": 61.0, "SpO2": 93.0, "lactate": 0.7}], logged=3)  # doctest: +SKIP
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from refork.agents.guard import GuardedPolicy, Veto
from refork.agents.guard_checks import Rule
from refork.agents.guarded_weights import guarded_policy
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import find
from refork.cluster.log_doses import channels
from refork.cluster.log_practice import training_density
from refork.cluster.log_source import LogSource, check_same_log
from refork.cluster.training import build_trainer
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogSpec
from refork.replay.formats.kinds import schema_of
from refork.replay.formats.schema import names_column
from refork.trainers.config import JobConfig

NAME = "guarded.npz"


@dataclass(frozen=True)
class Exported:
    """All that decisions need: no log, no torch."""

    spec: LogSpec
    weights: Mapping[str, np.ndarray]
    seeds: int
    state_features: np.ndarray | None
    first: Mapping[str, float] | None
    """Where the log was filled forward: values of what was not seen yet."""


def export_guarded(run: Path, target: Path | None = None) -> Path:
    """Write weights, guardian and description of a run's newest checkpoint to one file, by default in the run's folder.

    A policy trained without a guardian gets one, fitted to the training part of its log as the evaluation does. Returns
    the file. Raises BadInput for runs that did not learn from logs.
    """
    checkpoint = find(run)
    found = _rebuilt(checkpoint)
    path = target or checkpoint.parent.parent / NAME
    arrays = {f"weights/{name}": array for name, array in found.weights.items()}
    if found.state_features is not None:
        arrays["state_features"] = found.state_features
    head = json.dumps({"spec": found.spec.to_json(), "seeds": found.seeds, "first": found.first})
    partial = path.with_name(f".{path.name}.{os.getpid()}.npz")
    np.savez(partial, head=np.array(head), **arrays)  # type: ignore[arg-type]
    os.replace(partial, path)
    return path


def load_guarded(
    run: Path,
    seed: int = 0,
    *,
    rules: Sequence[Rule] = (),
    least_probability: float = 0.01,
    vetoes: Path | None = None,
) -> GuardedPolicy:
    """The guarded policy of an exported file, or of a run's or checkpoint's folder (then its log is read again).

    `seed`: which of the stacked trainings; `vetoes`: file that every veto is appended to, a line of JSON each. Raises
    BadInput when there is nothing that can be loaded.
    """
    exported = _read(run) if run.is_file() else _rebuilt(find(run))
    if not 0 <= seed < exported.seeds:
        raise BadInput(f"seed: the run trained {exported.seeds}, numbered from 0, got {seed}")
    known = channels(exported.spec)
    return guarded_policy(
        exported.spec,
        exported.weights,
        exported.seeds,
        seed,
        rules=rules,
        least_probability=least_probability,
        named=known.actions if known else (),
        state_features=exported.state_features,
        first=exported.first,
        on_veto=(lambda veto: None) if vetoes is None else VetoFile(vetoes),
    )


def _read(path: Path) -> Exported:
    try:
        with np.load(path) as found:
            head: dict[str, Any] = json.loads(str(found["head"]))
            weights = {name.removeprefix("weights/"): found[name] for name in found if name.startswith("weights/")}
            features = found.get("state_features")
        return Exported(LogSpec.from_json(head["spec"]), weights, int(head["seeds"]), features, head["first"])
    except (OSError, EOFError, ValueError, TypeError, KeyError, BadZipFile, BadInput) as error:
        raise BadInput(f"{path}: not an exported guarded policy ({error}); export the run again") from error


def _rebuilt(checkpoint: Path) -> Exported:
    loaded = read(checkpoint)
    job = JobConfig.model_validate(loaded.meta["job"])
    if job.trainer.learns_from != "logs":
        raise BadInput(f"{checkpoint}: {job.trainer.kind} did not learn from logs; a guard is fitted to a log")
    source = LogSource(job.env)
    check_same_log(source, checkpoint)
    trainer = build_trainer(job, source.shape)
    trainer.load_state_dict(loaded.state["trainer"])
    weights = dict(trainer.weights())
    if not any(name.startswith("guardian.") for name in weights):
        weights |= _guardian(source)
    seeds: int = job.trainer.seeds  # type: ignore[attr-defined]
    return Exported(source.spec, weights, seeds, source.log.state_features, _first(source))


def _first(source: LogSource) -> dict[str, float] | None:
    """As the schema of the log's file declares it; None where nothing is filled forward."""
    schema = None if source.env.tasks is None else schema_of(source.env.tasks, source.options.schema_file)
    if schema is None or schema.missing.policy != "forward_fill":
        return None
    declared = schema.missing.first.items()
    columns = source.spec.observation.names
    return {name: value for pattern, value in declared for name in columns if names_column(pattern, name)}


def _guardian(source: LogSource) -> dict[str, np.ndarray]:
    density = training_density(source.log.subset(source.splits["train"]))
    if density is None:
        raise BadInput("a guard is defined for one decision maker with one observation; this log is another one")
    return {f"guardian.{name}": array for name, array in density.arrays().items()}


class VetoFile:
    """Appends every veto as a line of JSON, written through at once."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput when the file cannot be written: vetoes must not be lost."""
        self.path = path
        try:
            with path.open("a"):
                pass
        except OSError as error:
            raise BadInput(f"vetoes {path}: cannot be written: {error.strerror}") from error

    def __call__(self, veto: Veto) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(veto.to_json()) + "\n")
            file.flush()
            os.fsync(file.fileno())
