"""A network of who acted, for logs that tables cannot count: stopped where other patients' decisions are likeliest."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from refork.agents.log_policy import softmax
from refork.agents.stacked import StackedMLP
from refork.envs.log_spec import LogSpec
from refork.replay.seeding import generator
from refork.replay.transitions import Transitions, split_by_patient
from torch import Tensor
from torch.nn import functional

HIDDEN, BATCH, CHECKS = (64,), 256, 20
EPOCHS, LEAST, MOST = 60, 200, 1000
"""Passes over the log, and the least and most gradient steps they may come to."""
LEARNING_RATE, DECAY = 2e-3, 1e-3


@dataclass(frozen=True)
class BehaviourNetwork:
    """Fitted; all decision makers in one network, independent given what is seen."""

    spec: LogSpec
    state_features: np.ndarray | None
    shift: np.ndarray
    scale: np.ndarray
    network: StackedMLP
    deviation: np.ndarray
    """(n * dimensions,): of continuous actions around the mean, in the action's unit; () for discrete ones."""

    def inputs(self, observations: np.ndarray) -> Tensor:
        flat = _flat(self.spec, self.state_features, observations)
        return torch.from_numpy(((flat - self.shift) / self.scale).astype(np.float32))

    @torch.no_grad()
    def outputs(self, observations: np.ndarray) -> np.ndarray:
        """(B, ...) -> (B, out)"""
        parts = [observations[i : i + 50_000] for i in range(0, len(observations), 50_000)]
        return np.concatenate([self.network(self.inputs(part)[None])[0].numpy() for part in parts])

    def act(self, observations: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """(B, n, width) probabilities; continuous: the mean action (B, n, dimensions)."""
        action = self.spec.action
        found = self.outputs(observations).reshape(len(observations), action.agents, action.width)
        if action.kind == "continuous":
            return np.clip(found, action.low, action.high).astype(np.float32)
        legal = np.broadcast_to(np.arange(action.width) < np.array(action.sizes)[:, None], found.shape)
        return softmax(found, legal if allowed is None else legal & allowed)

    def density(self, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """(B,) of continuous actions (B, n, dimensions)."""
        z = (actions.reshape(len(actions), -1) - self.outputs(observations)) / self.deviation
        logs = -0.5 * z**2 - np.log(self.deviation) - 0.5 * np.log(2 * np.pi)
        return np.exp(logs.sum(1))


def _flat(spec: LogSpec, state_features: np.ndarray | None, observations: np.ndarray) -> np.ndarray:
    """(B, ...) -> (B, F)"""
    if spec.observation.kind == "vector":
        return np.asarray(observations, np.float32).reshape(len(observations), -1)
    features = np.eye(spec.observation.size, dtype=np.float32) if state_features is None else state_features
    return features[np.asarray(observations)].reshape(len(observations), -1)


def fit_network(log: Transitions, transitions: np.ndarray, seed: int) -> BehaviourNetwork:
    """Learn from these transitions; a sixth of their patients only says when to stop."""
    kept, checked = _split(log, transitions, seed)
    rows = log.rows(kept)
    flat = _flat(log.spec, log.state_features, np.asarray(log.observations[rows]))
    spread = flat.std(0)
    action = log.spec.action
    out = action.agents * action.width
    weights = torch.Generator().manual_seed(int(generator(seed, "behaviour").integers(2**62)))
    network = StackedMLP([flat.shape[1], *HIDDEN, out], [weights])
    scale = np.where(spread > 1e-6, spread, 1.0)
    made = BehaviourNetwork(log.spec, log.state_features, flat.mean(0), scale, network, np.zeros(0))
    _train(made, log, kept, checked, seed)
    if action.kind == "discrete":
        return made
    errors = log.actions[checked].reshape(len(checked), -1) - made.outputs(log.observations[log.rows(checked)])
    return BehaviourNetwork(
        made.spec, made.state_features, made.shift, made.scale, network, np.maximum(errors.std(0), 1e-3)
    )


def _split(log: Transitions, transitions: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Transitions to learn from and to check on; the same where there are too few patients."""
    parts = [np.intersect1d(log.steps_of(part), transitions) for part in split_by_patient(log, [5, 1], seed + 17)]
    return (parts[0], parts[1]) if len(parts[0]) and len(parts[1]) else (transitions, transitions)


def _train(made: BehaviourNetwork, log: Transitions, kept: np.ndarray, checked: np.ndarray, seed: int) -> None:
    network, draws = made.network, generator(seed, "behaviour minibatches")
    optimiser = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=DECAY)
    checked = checked[np.linspace(0, len(checked) - 1, min(len(checked), 20_000)).astype(np.int64)]
    best, kept_state = np.inf, copy.deepcopy(network.state_dict())
    steps = int(np.clip(EPOCHS * len(kept) / BATCH, LEAST, MOST))
    for step in range(steps + 1):
        if step % (steps // CHECKS) == 0:
            with torch.no_grad():
                now = float(_loss(made, log, checked))
            if now < best:
                best, kept_state = now, copy.deepcopy(network.state_dict())
        loss = _loss(made, log, kept[draws.integers(len(kept), size=BATCH)])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.load_state_dict(kept_state)


def _loss(made: BehaviourNetwork, log: Transitions, transitions: np.ndarray) -> Tensor:
    """Mean -log p of discrete actions; squared error of continuous ones."""
    rows, action = log.rows(transitions), log.spec.action
    found = made.network(made.inputs(np.asarray(log.observations[rows]))[None])[0]
    taken = torch.from_numpy(np.asarray(log.actions[transitions]))
    if action.kind == "continuous":
        return functional.mse_loss(found, taken.reshape(len(taken), -1))
    logits = found.view(len(taken), action.agents, action.width)
    legal = torch.arange(action.width) < torch.tensor(action.sizes)[:, None]
    if log.allowed is not None:
        legal = legal & torch.from_numpy(np.asarray(log.allowed[rows]))
    # (B, n, width) -> (B * n, width)
    logits = logits.masked_fill(~legal, -torch.inf).flatten(0, 1)
    return functional.cross_entropy(logits, taken.flatten())
