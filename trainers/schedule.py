"""The step size as a pure function of the update's number in the run, so that resuming cannot bend it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from refork.envs.forkable import BadInput
from refork.trainers.config import TrainerConfig


@dataclass(frozen=True)
class Schedule:
    """`peak` after `warmup` updates, then constant or falling to 0 at `horizon`."""

    kind: str
    peak: float
    warmup: int
    horizon: int

    @classmethod
    def of(cls, config: TrainerConfig) -> Schedule:
        return cls(config.schedule, config.learning_rate, config.warmup, config.horizon or config.updates)

    def rate(self, update: int) -> float:
        """Step size of update number `update`, from 0."""
        if update < self.warmup:
            return self.peak * (update + 1) / self.warmup
        if self.kind == "constant":
            return self.peak
        done = min(1.0, (update - self.warmup) / max(1, self.horizon - self.warmup))
        return self.peak * (1 - done if self.kind == "linear" else 0.5 * (1 + math.cos(math.pi * done)))

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def check(self, saved: Mapping[str, Any]) -> None:
        """Raises BadInput when going on with this schedule would bend the one that was `saved`."""
        for name, value in saved.items():
            now = getattr(self, name)
            matters = name != "horizon" or self.kind != "constant"
            if matters and now != value:
                key = "learning_rate" if name == "peak" else "schedule" if name == "kind" else name
                raise BadInput(
                    f"trainer.{key}: the checkpoint's schedule was made with {value!r}, the job now gives {now!r}; "
                    f"resume with --trainer.{key} {value}"
                )
