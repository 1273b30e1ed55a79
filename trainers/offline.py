"""The trainer of logs: minibatches, gradient steps, target networks and state are the same for all algorithms.

An algorithm builds its networks and gives the losses of a minibatch; several seeds are trained as one stack.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from refork.agents.head_pass import HeadPass
from refork.agents.q_networks import LogNetworks
from refork.envs.forkable import BadInput
from refork.envs.log_spec import LogSpec
from refork.replay.seeding import generator
from refork.replay.transitions import LoggedExperience
from refork.trainers.agent_batch import AgentBatch
from refork.trainers.flat_stack import FlatStack, adam_step
from refork.trainers.log_batch import Batch, LogTensors, Minibatches
from refork.trainers.loop import Diverged
from refork.trainers.offline_config import OfflineConfig
from refork.trainers.ranks import Alone, Ranks, own_rows
from refork.trainers.schedule import Schedule
from refork.trainers.target_rows import TargetRows
from torch import Tensor, nn

Config = TypeVar("Config", bound=OfflineConfig)


class Objective(NamedTuple):
    """What some of the networks minimise on a minibatch."""

    networks: Sequence[str]
    """Names of those that learn from it; gradients do not reach the others."""
    terms: Any
    """A frozen dataclass of tensors, one number a seed or a member, means over the minibatch; `total` is minimised."""
    passes: Sequence[HeadPass] = ()
    """Where all that the networks contribute are these passes, one each (agents/head_pass.py)."""
    weight: Tensor | None = None
    """(seeds,): how much of the minibatch the terms are a mean of; None: all its rows."""


class OfflineTrainer(ABC, Generic[Config]):
    """Base of `trainers/ALGORITHM/trainer.py: Trainer` for logs."""

    targeted: Sequence[str] = ()
    """Networks that have a slowly moving copy in `self.targets`; the config is then a ValueConfig."""

    def __init__(self, config: Config, networks: LogNetworks, seed: int) -> None:
        self.config, self.factory, self.spec = config, networks, networks.spec
        self.ranks: Ranks = Alone()
        self.gamma = networks.spec.gamma if config.gamma is None else config.gamma
        check_fits(config, networks.spec)
        self.seeds = [seed + s for s in range(config.seeds)]
        self.schedule = Schedule.of(config)
        self.networks = nn.ModuleDict(dict(self.build()))
        self.targets = nn.ModuleDict({name: copy.deepcopy(self.networks[name]) for name in self.targeted})
        self.targets.requires_grad_(False)
        self._flat = {name: FlatStack(network, config.seeds) for name, network in self.networks.items()}
        self._flat_targets = {name: FlatStack(network, config.seeds) for name, network in self.targets.items()}
        self._target_rows = {
            name: TargetRows(network, self.spec, config)  # type: ignore[arg-type]
            for name, network in self.targets.items()
        }
        self._tensors: LogTensors | None = None
        stepped = [flat for stack in self._flat.values() for flat in stack.flats]
        self.optimiser = torch.optim.Adam(stepped, lr=config.learning_rate, fused=True)
        self._minibatches = Minibatches(self.seeds, self.gamma)
        self._noise: list[torch.Generator] = []
        self._done = 0
        """Gradient steps so far."""

    @abstractmethod
    def build(self) -> Mapping[str, nn.Module]:
        """The networks by name; each parameter's leading axis is seed-major."""

    @abstractmethod
    def losses(self, batch: Batch) -> Sequence[Objective]:
        """What the networks minimise on this minibatch."""

    @abstractmethod
    def weights(self) -> dict[str, np.ndarray]:
        """The acting heads (agents/log_policy.py)."""

    def begin(self, experience: LoggedExperience, update: int) -> None:
        """Called before the gradient steps of an update: what must be fitted to the log first."""

    def fork_config(self, update: int) -> None:
        """A log cannot be gone back in."""

    def update(self, update: int, experience: Sequence[Any]) -> dict[str, float]:
        """`steps_per_update` gradient steps; means over steps and seeds of every loss term.

        Raises Diverged when a loss is not finite.
        """
        config, (logged,) = self.config, experience
        rate = self.schedule.rate(update)
        self.optimiser.param_groups[0]["lr"] = rate
        self._noise = [_torch_generator(seed, update) for seed in self.seeds]
        self._tensors = self._minibatches.tensors(logged.log)
        self.begin(logged, update)
        if config.batch < self.ranks.size:
            raise BadInput(f"trainer.batch: {config.batch} transitions cannot be dealt to {self.ranks.size} learners")
        batches = self._minibatches.draw(logged, update, config.steps_per_update, config.batch, self.ranks)
        members = _member_means([self._step(batch) for batch in batches])
        self.ranks.add(list(members.values()))
        self._check(update, members)
        seen = config.steps_per_update * config.batch * config.seeds
        means = {name: float(values.mean()) for name, values in members.items()}
        return means | {"learning_rate": rate, "steps": float(seen), "gradient_steps": float(self._done)}

    def _check(self, update: int, members: Mapping[str, Tensor]) -> None:
        for name, values in members.items():
            for member in (~values.isfinite()).nonzero().flatten().tolist():
                seed = member * self.config.seeds // len(values)
                what = f"update {update}: {name} of seed {seed} is {float(values[member])}"
                raise Diverged(f"{what}; lower trainer.learning_rate")

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        row: dict[str, Tensor] = {}
        learning: list[str] = []
        for objective in self.losses(batch):
            share = None if self.ranks.size == 1 else self._share(batch, objective)
            self._derive(objective, share)
            learning += objective.networks
            prefix = "loss/" + "+".join(objective.networks)
            found = {f"{prefix}/{key}": value.detach() for key, value in vars(objective.terms).items()}
            row |= found if share is None else {key: _scaled(value, share) for key, value in found.items()}
        self.ranks.add([g for name in learning for g in self._flat[name].written])
        for name, stack in self._flat.items():
            if name in learning:
                stack.clip(self.config.max_grad_norm)
            else:
                stack.rest()
        adam_step(self.optimiser)
        self._done += 1
        self._move_targets()
        return row

    def _share(self, batch: Batch, objective: Objective) -> Tensor:
        """(seeds,): what this rank's terms weigh among all ranks', together 1."""
        if objective.weight is None:
            return torch.full((self.config.seeds,), batch.transitions.shape[1] / self.config.batch)
        total = objective.weight.clone()
        self.ranks.add([total])
        return objective.weight / total

    def _derive(self, objective: Objective, share: Tensor | None) -> None:
        """Write the gradients of its networks."""
        total = objective.terms.total
        total = total.sum() if share is None else _scaled(total, share).sum()
        places = {p: place for name in objective.networks for p, place in self._flat[name].gradients.items()}
        if objective.passes:
            found = torch.autograd.grad(total, [p.answers for p in objective.passes])
            for passed, gradient in zip(objective.passes, found, strict=True):
                passed.back(gradient, places)
            return
        torch._foreach_copy_(list(places.values()), list(torch.autograd.grad(total, list(places))))

    def _move_targets(self) -> None:
        config = self.config
        if not self.targeted or self._done % config.target_every:  # type: ignore[attr-defined]
            return
        for name, stack in self._flat_targets.items():
            stack.follow(self._flat[name], config.target_rate)  # type: ignore[attr-defined]
            self._target_rows[name].moved()

    @torch.no_grad()
    def target_values(self, name: str, batch: AgentBatch) -> Tensor:
        """What the target of a head answers to the next observations, (K, B, out)."""
        assert self._tensors is not None
        known = self._target_rows[name].at(batch.next_rows, self._tensors)
        found: Tensor = self.targets[name](batch.next_observations) if known is None else known
        return found

    def normal(self, *shape: int, rows: int = 0) -> Tensor:
        """(S, *shape) of standard normal numbers; each seed has a stream of its own.

        `rows`: the axis of `shape` that is along the minibatch: a rank draws for all of it and takes what is its own.
        """
        return self._drawn(torch.randn, shape, rows)

    def uniform(self, *shape: int, rows: int = 0) -> Tensor:
        """(S, *shape) of numbers uniform in [0, 1), otherwise as `normal`."""
        return self._drawn(torch.rand, shape, rows)

    def _drawn(self, draw: Callable[..., Tensor], shape: tuple[int, ...], rows: int) -> Tensor:
        if self.ranks.size == 1:
            return torch.stack([draw(shape, generator=g) for g in self._noise])
        whole = (*shape[:rows], self.config.batch, *shape[rows + 1 :])
        mine = own_rows(self.ranks, self.config.batch)
        return torch.stack([draw(whole, generator=g).index_select(rows, mine) for g in self._noise])

    def state_dict(self) -> dict[str, Any]:
        return {
            "networks": self.networks.state_dict(),
            "targets": self.targets.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "done": self._done,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises BadInput when the schedule or a network's shape differs, or another version wrote it."""
        try:
            self.schedule.check(state["schedule"])
            self.networks.load_state_dict(state["networks"])
            self.targets.load_state_dict(state["targets"])
            self.optimiser.load_state_dict(state["optimiser"])
            self._done = state["done"]
        except KeyError as error:
            raise BadInput(f"the checkpoint has no {error}: another version wrote it") from error
        except (RuntimeError, ValueError) as error:
            raise BadInput(f"the checkpoint is of other networks than the job's agent: {error}") from error
        for rows in self._target_rows.values():
            rows.moved()


def check_fits(config: OfflineConfig, spec: LogSpec) -> None:
    """Raises BadInput for a log that the algorithm cannot learn from."""
    kind = spec.action.kind if spec.action.agents == 1 else f"factored {spec.action.kind}"
    if kind not in config.takes:
        raise BadInput(
            f"trainer.kind: {config.kind} learns from {' or '.join(config.takes)} actions; "
            f"this log has {spec.action.agents} x {kind} ones"
        )
    if spec.observation.kind not in config.observes:
        raise BadInput(
            f"trainer.kind: {config.kind} learns from logs of {' or '.join(config.observes)}; "
            f"this one is of {spec.observation.kind}"
        )


def by_actions(
    discrete: type[OfflineTrainer[Config]], continuous: type[OfflineTrainer[Config]]
) -> Callable[[Config, LogNetworks, int], OfflineTrainer[Config]]:
    """`Trainer` of an algorithm that has one for either kind of actions: it makes the one for the log's."""

    def make(config: Config, networks: LogNetworks, seed: int) -> OfflineTrainer[Config]:
        return (discrete if networks.spec.action.kind == "discrete" else continuous)(config, networks, seed)

    return make


def _scaled(terms: Tensor, share: Tensor) -> Tensor:
    """Terms (), (seeds,) or (seeds x members,) by what the rank weighs in each seed, (seeds,)."""
    return terms * (share.repeat_interleave(terms.numel() // len(share)) if terms.ndim else share.mean())


def _member_means(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Of each name over the steps that have it, a number a seed or member."""
    names = dict.fromkeys(name for row in rows for name in row)
    means = {name: torch.stack([row[name] for row in rows if name in row]).mean(0) for name in names}
    return {name: torch.atleast_1d(mean) for name, mean in means.items()}


def _torch_generator(seed: int, update: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(generator(seed, "noise", update).integers(2**62)))
