"""How runs in which RLlib learnt are judged: by our families, on policies exported as our own. Imports no Ray."""

from __future__ import annotations

from typing import Any

from refork.cluster.checkpoint import Checkpoint
from refork.cluster.family import LOGGED
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig, RolloutConfig
from refork.trainers.loop import Weights

NOT_JUDGED = (
    "a policy of RLlib's is judged on games (cross_graph) and where observations are numbered states "
    "(clinical simulators and their logs)"
)


def is_judged(family: Any) -> bool:
    """Can its policy be exported as ours are? At numbered states it is a table, whatever network it was."""
    if family.experience == "games":
        return True
    if family.experience != "logs":
        return False
    spec = family.source.spec
    return bool(spec.observation.kind == "states" and spec.action.kind == "discrete")


def judging_job(job: JobConfig) -> JobConfig:
    """Where RLlib's own processes play (`rollout.actors`), ours read the log alone."""
    if job.trainer.runs_in != "rllib" or job.env.id not in LOGGED:
        return job
    return job.model_copy(update={"rollout": RolloutConfig()})


def saved_policies(checkpoint: Checkpoint) -> tuple[Weights, Weights]:
    """Acting weights before any learning, and of the checkpoint. Raises BadInput where none could be exported."""
    state = checkpoint.state
    if not state["policy"]:
        raise BadInput(f"{checkpoint.path}: {NOT_JUDGED}; its metrics.jsonl tells what RLlib measured")
    return state["untrained"], state["policy"]
