"""Settings of a run in which RLlib samples and learns. Importing this imports neither torch nor Ray."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from refork.trainers.config import TrainerConfig

ELSEWHERE = {
    "learning_rate": "trainer.options.training.lr",
    "max_grad_norm": "trainer.options.training.grad_clip",
    "gamma": "trainer.options.training.gamma",
    "batch": "trainer.options.training.train_batch_size_per_learner",
    "epochs": "trainer.options.training.num_epochs",
    "minibatch": "trainer.options.training.minibatch_size",
    "eta": "trainer.options.training.mirror.eta",
    "type": "trainer.kind",
}
"""Where RLlib keeps what our own trainers have under another key."""


class AlgorithmConfig(TrainerConfig):
    """An update of the run is one training iteration of RLlib's. What only our own loop has is no key here."""

    learns_from: ClassVar[str] = "any"
    runs_in: ClassVar[str] = "rllib"
    seeds: ClassVar[int] = 1
    """A run trains one policy."""
    learning_rate: ClassVar[float] = 0.0  # type: ignore[misc]
    schedule: ClassVar[str] = "constant"  # type: ignore[misc]
    warmup: ClassVar[int] = 0  # type: ignore[misc]
    horizon: ClassVar[int] = 0  # type: ignore[misc]
    tasks_per_update: ClassVar[int] = 1  # type: ignore[misc]
    group: ClassVar[int] = 1  # type: ignore[misc]
    max_grad_norm: ClassVar[float] = 0.0  # type: ignore[misc]
    quarantine: ClassVar[int] = 1  # type: ignore[misc]
    stall: ClassVar[int] = 1  # type: ignore[misc]

    kind: Literal["rllib"] = "rllib"
    """Algorithm."""
    algorithm: str = "PPO"
    """Algorithm of RLlib, e.g. PPO, APPO, DQN, SAC; from logs BC, MARWIL; PMD: our mirror descent on games."""
    updates: int = Field(100, ge=1)
    """Training iterations in the run."""
    options: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """RLlib's own settings by group, as its AlgorithmConfig has them: e.g. training.lr."""

    @model_validator(mode="before")
    @classmethod
    def _placed(cls, data: Any) -> Any:
        for name in ELSEWHERE.keys() & set(data) if isinstance(data, dict) else ():
            raise ValueError(f"{name}: not a key of trainer rllib; set {ELSEWHERE[name]}")
        return data
