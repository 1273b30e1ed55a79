"""The job: one frozen model that a TOML file and dotted overrides fill. Importing it imports neither torch nor ray."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator


class Config(BaseModel):
    """Base of all configs: frozen, unknown keys refused, the string under a field is its help text."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class EnvConfig(Config):
    id: str = "refork/RepairMenu-v0"
    """Environment id in the Gymnasium registry."""
    tasks: Path | None = None
    """Folder of a built task set, of your own games, or a log (any file that `refork data check` reads); None: the set
    that `refork tasks build` makes by default, generated games, or a log that the simulator writes."""
    backend: Literal["overlay", "docker", "e2b", "replay"] = "overlay"
    """Sandbox backend of software tasks."""
    train: tuple[str, ...] = ()
    """Packages, or own games, to train on; empty: all that are neither validation nor held out."""
    validation: tuple[str, ...] = ()
    """Packages, or own games, for tuning."""
    held_out: tuple[str, ...] = ()
    """Packages, or own games, for the final evaluation, never trained or tuned on."""
    cache: bool = True
    """Answer executions already in the state DAG from it."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the environment's constructor; for games what `cluster/game_options.py` lists."""


AGENTS = {"tasks": "edit_scorer", "games": "cross_graph", "logs": "q_networks", "any": "rllib"}
"""What acts in what a trainer learns from; rllib: a network that RLlib makes."""


class AgentConfig(Config):
    kind: str = "edit_scorer"
    """Module of `agents/` that acts; left out: the one that the trainer trains."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the network's constructor."""


class RolloutConfig(Config):
    actors: int = Field(0, ge=0)
    """Rollout actors, of all learners together; 0: learners play by themselves, one learner without Ray."""
    cpus: float = Field(1.0, gt=0)
    """CPU cores that Ray sets aside for each actor."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """What each actor takes of the nodes' own resources, e.g. sandbox = 1: then only nodes with that play."""
    max_staleness: int = Field(0, ge=0, le=8)
    """Updates by which the acting policy is behind, so that playing goes on while it learns; 0: they take turns. A
    resumed run must keep it."""


class ClusterConfig(Config):
    learners: int = Field(1, ge=1)
    """Learners that deal the work of an update among themselves, a core each; 1: this process, without Ray."""
    address: str = "local"
    """Where actors and learners run: local (a private Ray on this machine), auto (the Ray cluster that this machine or
    job is part of), or HOST:PORT of a cluster's head. Its token: RAY_AUTH_TOKEN_PATH."""


class EvaluateConfig(Config):
    attempts: int = Field(4, ge=1)
    """Sampled episodes per task."""
    tasks: int = Field(0, ge=0)
    """Tasks to play, evenly over packages (games: domain, coupling and size); 0: all."""
    pass_k: tuple[int, ...] = (1, 4)
    """k of pass@k."""
    every: int = Field(0, ge=0)
    """Updates between evaluations on the validation tasks during training; 0: none."""


class TrackingConfig(Config):
    wandb: Literal["auto", "online", "offline", "off"] = "auto"
    """W&B beside metrics.jsonl; auto: online with a key, else offline."""
    project: str = "refork"
    """W&B project."""
    group: str = ""
    """W&B group of the run; empty: the name of the job."""
    artifacts: Literal["none", "last", "all"] = "last"
    """Checkpoints kept by W&B as versions of the run's model: none, the one a finished run ends with, every one."""


class CheckpointConfig(Config):
    every: int = Field(10, ge=1)
    """Updates between checkpoints."""
    keep: int = Field(2, ge=1)
    """The last ones, kept."""
    keep_best: int = Field(0, ge=0, le=1)
    """1: keep the best of those that were evaluated too."""
    best_of: str = ""
    """Metric of metrics.jsonl that tells the best, more is better; empty: validation/resolved (tasks),
    validation/fraction (games), validation/fqe (logs)."""
    keep_every: int = Field(0, ge=0)
    """Keep those whose update is a multiple of it for ever; 0: none."""
    budget_gb: float = Field(0.0, ge=0)
    """All checkpoints of the run on this disk, the new one beside the old included; 0: no limit. Where it does not
    fit, older ones go first, never the newest."""
    free_gb: float = Field(1.0, ge=0)
    """What a save leaves free on the disk; below it, training goes on unsaved until there is room. The last save of a
    run may use it."""


class TrainerConfig(Config):
    """What every algorithm has; each `trainers/ALGORITHM/config.py` extends it as `AlgorithmConfig`."""

    learns_from: ClassVar[str] = "tasks"
    """The kind of experience it takes: tasks played by one agent, games of two, logs; any: all of them."""
    runs_in: ClassVar[str] = "loop"
    """What runs it: our own loop (trainers/loop.py), or rllib."""
    kind: str
    """Algorithm: a folder of `trainers/`."""
    updates: int = Field(100, ge=1)
    """Updates in the run."""
    learning_rate: float = Field(3e-3, gt=0)
    """Adam's step size."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the step size falls to 0 over the horizon."""
    warmup: int = Field(0, ge=0)
    """Updates over which the step size rises from 0."""
    horizon: int = Field(0, ge=0)
    """Updates the schedule is stretched over; 0: `updates`. A resumed run must keep it."""
    tasks_per_update: int = Field(8, ge=1)
    """Tasks per update."""
    group: int = Field(4, ge=1)
    """Main rollouts per task."""
    max_grad_norm: float = Field(1.0, gt=0)
    """Gradient norm clip."""
    staleness_cap: float = Field(2.0, gt=0)
    """Largest importance weight of a decision that an older policy made (rollout.max_staleness)."""
    quarantine: int = Field(3, ge=1)
    """A task whose machinery fails in that many groups in a row is not played again, and reported."""
    stall: int = Field(5, ge=1)
    """The run fails after that many updates in a row without one judged rollout."""


class PolicyGradientConfig(TrainerConfig):
    """What the clipped policy-gradient algorithms share."""

    epochs: int = Field(1, ge=1)
    """Passes over the experience of an update."""
    minibatch: int = Field(0, ge=0)
    """Decisions per gradient step; 0: all."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """Ratio clip below 1."""
    clip_high: float = Field(0.28, gt=0)
    """Ratio clip above 1."""
    dual_clip: float = Field(3.0, gt=1)
    """Ratio limit for negative advantages."""
    kl: float = Field(0.0, ge=0)
    """Weight of the KL divergence (k3) from the policy the run began with."""
    entropy_bonus: float = Field(0.0, ge=0)
    """Weight of the policy's entropy."""
    advantage_scale: Literal["std", "none"] = "std"
    """Divide the advantages of an update by their standard deviation."""


def algorithms() -> tuple[str, ...]:
    """Names of the folders in `trainers/` that hold an algorithm of ours (a `config.py` beside a `trainer.py`)."""
    here = Path(__file__).parent
    return tuple(m.name for m in pkgutil.iter_modules([str(here)]) if (here / m.name / "trainer.py").exists())


def kinds() -> tuple[str, ...]:
    """All that `trainer.kind` may be: our algorithms, and what other libraries run (a `config.py` alone)."""
    here = Path(__file__).parent
    return tuple(m.name for m in pkgutil.iter_modules([str(here)]) if (here / m.name / "config.py").exists())


def trainer_config_class(kind: str) -> type[TrainerConfig]:
    """The config model of algorithm `kind`, without importing its trainer. Raises ValueError naming those there are."""
    if kind not in kinds():
        raise ValueError(f"no algorithm {kind!r}; there are: {', '.join(kinds())}")
    return importlib.import_module(f"refork.trainers.{kind}.config").AlgorithmConfig


class JobConfig(Config):
    """One training job."""

    name: str = Field("run", pattern="^[^/]+$")
    """Name of the run, part of its folder."""
    seed: int = Field(0, ge=0)
    """The one seed everything random is derived from."""
    runs: Path = Path("runs")
    """Folder the run's folder is made in."""
    storage: str = ""
    """URL below which the run is mirrored at every checkpoint, e.g. s3://bucket/runs or file:///shared/runs; from there
    any machine goes on with it: refork train URL/RUN --resume. Empty: nowhere."""
    env: EnvConfig = EnvConfig()
    agent: AgentConfig = AgentConfig()
    trainer: SerializeAsAny[TrainerConfig]
    rollout: RolloutConfig = RolloutConfig()
    cluster: ClusterConfig = ClusterConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    tracking: TrackingConfig = TrackingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _check_placing(self) -> Self:
        """What would have no effect is refused."""
        rollout = self.rollout
        placed = rollout.max_staleness or rollout.cpus != 1 or rollout.resources or self.cluster.address != "local"
        if self.trainer.runs_in == "rllib" and placed:
            raise ValueError(
                "rollout.max_staleness, rollout.cpus, rollout.resources and cluster.address: RLlib places and plays by "
                "itself, on this machine; leave them out"
            )
        if self.rollout.max_staleness and self.trainer.learns_from == "logs":
            raise ValueError(
                "rollout.max_staleness: nothing is played ahead of a trainer that learns from a log; leave it out"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _choose_trainer(cls, data: Any) -> Any:
        """`trainer.kind` decides which model reads the rest of `[trainer]`, and what acts."""
        if not isinstance(data, dict) or "trainer" not in data:
            return data
        trainer, agent = data["trainer"], data.get("agent", {})
        if isinstance(trainer, dict):
            model = trainer_config_class(trainer.get("kind", "crr"))
            trainer = model.model_validate({"kind": "crr", **trainer})
        if isinstance(trainer, TrainerConfig) and isinstance(agent, dict):
            agent = {"kind": AGENTS[trainer.learns_from], **agent}
        return {**data, "trainer": trainer, "agent": agent}
