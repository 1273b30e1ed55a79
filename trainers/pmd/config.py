"""Settings of policy mirror descent and the updates it is compared with. Importing this imports no torch."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from refork.trainers.config import TrainerConfig


class AlgorithmConfig(TrainerConfig):
    """`update` names the policy objective; collector, networks, epochs, minibatches and optimiser are the same for all
    (mappo adds a critic that sees both graphs)."""

    learns_from: ClassVar[str] = "games"

    kind: Literal["pmd"] = "pmd"
    """Algorithm."""
    update: Literal["pmd", "ppo_clip", "ppo_kl", "mmd", "mappo"] = "pmd"
    """Policy objective: mirror descent; PPO clipped, or with the adaptive KL penalty; magnetic mirror descent; PPO
    clipped with a central critic."""
    eta: float = Field(0.1, gt=0)
    """Mirror descent's step size: the weight of KL(new || old) is 1 / eta. ppo_kl begins with that weight too."""
    eta_schedule: Literal["constant", "sqrt", "inverse", "target"] = "constant"
    """How eta falls with the iteration k: not, by 1 / sqrt(k), by 1 / k; target: it follows `kl_target`."""
    kl_target: float = Field(0.01, gt=0)
    """KL per iteration that eta_schedule target and ppo_kl steer at, nats."""
    clip: float = Field(0.2, gt=0, lt=1)
    """Ratio clip of ppo_clip and mappo."""
    tau: float = Field(0.0, ge=0)
    """Weight of KL(policy || magnet)."""
    magnet: Literal["initial", "moving", "uniform"] = "uniform"
    """What the policy is pulled to: the policy that learning began with (after a warm start: the clone), a moving
    average of the policy, or the uniform one."""
    magnet_rate: float = Field(0.05, gt=0, le=1)
    """How fast a moving magnet follows, per iteration."""
    entropy_bonus: float = Field(0.0, ge=0)
    """Weight of the policy's entropy."""
    epochs: int = Field(4, ge=1)
    """Passes over the games of an update."""
    minibatch: int = Field(16, ge=0)
    """Whole games per gradient step; 0: all."""
    gae_lambda: float = Field(0.95, ge=0, le=1)
    """Bias against variance in advantages and value targets."""
    baseline: Literal["value", "counterfactual"] = "value"
    """Advantage: GAE on V, or the return minus the mean of Q over one's own moves, the partner's move given."""
    critic_learning_rate: float = Field(3e-3, gt=0)
    """Adam's step size of the critics; follows `schedule` too."""
    critic_width: int = Field(16, ge=1)
    """Width of the critics' layers."""
    scale_rate: float = Field(0.05, gt=0, le=1)
    """How fast the running scale of value targets follows."""
    distil: float = Field(1.0, ge=0)
    """Weight of imitating the moves that search found."""
    improve_candidates: int = Field(0, ge=0)
    """Joint moves tried by forking, per searched decision; 0: no search."""
    improve_states: float = Field(0.25, gt=0, le=1)
    """Share of rounds that are searched."""
    improve_margin: float = Field(0.5, ge=0)
    """Welfare that a candidate must bring beyond the policy's own moves to be taught: about one unit served for half a
    round. What hardly differs cannot be told apart by what an operator sees."""
    warm_updates: int = Field(0, ge=0)
    """Updates at the start in which a heuristic plays, the policy clones it and the critics learn its values."""
    warm_heuristic: str = "coupled_greedy"
    """Who plays them."""
    critic_updates: int = Field(0, ge=0)
    """Updates after these in which the policy plays and only the critics learn."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.update == "mmd" and self.tau == 0:
            raise ValueError("update = mmd is pulled to a magnet: tau must be above 0, 0.05 is a start")
        if self.update == "mappo" and self.baseline == "counterfactual":
            raise ValueError("update = mappo has a central critic: baseline must be value")
        if self.improve_candidates == 1:
            raise ValueError("improve_candidates counts the policy's own move: 0, or at least 2")
        if self.warm_updates + self.critic_updates >= self.updates:
            raise ValueError("warm_updates and critic_updates leave no update to learn in: raise updates")
        return self
