"""Policy mirror descent as an RLlib algorithm: PPO's sampling and advantages, our loss."""

from __future__ import annotations

from typing import Any, Self

import torch
from refork.cluster.local_ray import ray  # noqa: F401 (sets what Ray reads while it is imported, so it comes first)

# isort: split
from ray.rllib.algorithms.algorithm_config import NotProvided
from ray.rllib.algorithms.ppo.ppo import PPO, PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY, POLICY_LOSS_KEY, VF_LOSS_KEY
from ray.rllib.evaluation.postprocessing import Postprocessing
from refork.envs.graph_game.instance import AGENTS
from refork.trainers.pmd.config import AlgorithmConfig as MirrorDescent
from refork.trainers.pmd.loss import Decisions, divergence, policy_loss, value_loss
from refork.trainers.pmd.penalty import Penalty
from refork.trainers.surrogate import entropy
from torch import Tensor

KL_KEY = "kl_new_old"
"""KL(new || old) of the last minibatch of an iteration, nats."""
ETA_KEY = "eta"


class PMDConfig(PPOConfig):
    """PPO's settings, of which clip and KL coefficient are not used, and mirror descent's."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or PMD)
        self.use_kl_loss = False
        self.mirror: dict[str, Any] = {}

    def training(self, *, mirror: Any = NotProvided, **kwargs: Any) -> Self:
        """`mirror`: settings of trainers/pmd (eta, eta_schedule, entropy_bonus). Raises ValueError for wrong ones."""
        super().training(**kwargs)
        if mirror is not NotProvided:
            mirror_descent(mirror)
            self.mirror = dict(mirror)
        return self

    def get_default_learner_class(self) -> type[PMDTorchLearner]:
        return PMDTorchLearner


class PMD(PPO):
    """Mirror descent on what PPO samples."""

    @classmethod
    def get_default_config(cls) -> PMDConfig:
        return PMDConfig()


def mirror_descent(settings: dict[str, Any]) -> MirrorDescent:
    """Raises ValueError (pydantic's) for a setting that is none, or has no meaning here."""
    unknown = set(settings) - {"eta", "eta_schedule", "entropy_bonus"}
    if unknown or settings.get("eta_schedule") == "target":
        raise ValueError(f"mirror descent in RLlib: no {sorted(unknown) or 'eta_schedule target'}; use our own trainer")
    return MirrorDescent(update="pmd", **settings)


class PMDTorchLearner(PPOTorchLearner):
    """-E[ratio A] + 1/eta KL(new || old), exact over the masked categorical, on the mask stored with the decision.

    RLlib's own KL term is old against new. The old policy is what the batch was sampled with, the same in all epochs.
    """

    def build(self) -> None:
        super().build()
        config: Any = self.config
        self._penalty = Penalty(mirror_descent(config.mirror))

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any) -> Tensor:
        real = batch[Columns.LOSS_MASK]  # an extra step behind each episode serves the advantages alone
        mask = batch[Columns.OBS]["action_mask"][real].bool()
        new = fwd_out[Columns.ACTION_DIST_INPUTS][real]
        seen = Decisions(
            mask,
            batch[Columns.ACTIONS][real],
            batch[Columns.ACTION_DIST_INPUTS][real],
            batch[Postprocessing.ADVANTAGES][real],
        )
        operator = AGENTS.index(module_id)
        terms = policy_loss(new, seen, self._penalty.objective(operator))
        module: Any = self.module[module_id].unwrapped()
        critic = value_loss(module.compute_values(batch)[real], batch[Postprocessing.VALUE_TARGETS][real])
        with torch.no_grad():
            logged = {
                POLICY_LOSS_KEY: terms.surrogate,
                VF_LOSS_KEY: critic,
                ENTROPY_KEY: entropy(new).mean(),
                KL_KEY: divergence(new, seen.old, mask).mean(),
                ETA_KEY: self._penalty.eta(operator),
            }
        self.metrics.log_dict(logged, key=module_id, window=1)
        return terms.total + config.vf_loss_coeff * critic

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        super().after_gradient_based_update(timesteps=timesteps)
        self._penalty.adapt(())  # the iteration is done

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_state(*args, **kwargs), "penalty": self._penalty.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        if "penalty" in state:
            self._penalty.load_state_dict(state["penalty"])
