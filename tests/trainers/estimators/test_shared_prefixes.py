"""Prefix steps count once: the gradient of a tree equals that of the same leaves replayed whole, each from the root."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from refork.agents.registry import make_network, make_policy
from refork.envs.chain import ChainEnv
from refork.envs.forkable import Reward
from refork.replay.counterfactual import ForkConfig, GroupRequest, collect_group
from refork.replay.trajectory import TaskExperience, Trajectory
from refork.trainers.advantages import Credit
from refork.trainers.batch import make_batch
from refork.trainers.estimators.registry import ESTIMATORS
from refork.trainers.estimators.tree import Tree
from refork.trainers.estimators.tree_grpo import leaf_advantages
from refork.trainers.surrogate import Clip, Penalty
from refork.trainers.tree.loss import tree_loss

from tests.trainers.chain_run import NAMES, PRIOR

NETWORK = make_network("edit_scorer", NAMES, {"hidden": [], "prior": PRIOR}, 0)


@pytest.fixture(scope="module")
def experience() -> TaskExperience:
    """Two rollouts of six decisions, returns replaced so that leaves differ."""
    config = ForkConfig(which="all", rule="uniform", forks=2, alternatives=2, actions="policy")
    request = GroupRequest("chain-3", 0, 0, 0, 2)
    policy = make_policy("edit_scorer", NETWORK.acting_weights())  # ratios of 1, where the surrogate is linear in A
    played = collect_group(ChainEnv("chain-3", length=6), policy, request, config)
    rng = np.random.default_rng(1)

    def valued(t: Trajectory) -> Trajectory:
        return replace(t, outcome=Reward(float(rng.integers(2))))

    return replace(played, mains=tuple(map(valued, played.mains)), branches=tuple(map(valued, played.branches)))


def _gradient(experience: TaskExperience, credit: Credit) -> torch.Tensor:
    """Of the sum of the surrogate over decisions, by the network's weights."""
    batch = make_batch([experience], [credit])
    assert batch is not None
    NETWORK.zero_grad()
    log_probs = NETWORK(batch.features, batch.mask)
    (len(batch) * tree_loss(batch, log_probs, None, Clip(), Penalty()).total).backward()
    return torch.cat([p.grad.ravel() for p in NETWORK.parameters() if p.grad is not None])


def _unshared(experience: TaskExperience) -> TaskExperience:
    """Every leaf as a rollout of its own, its prefix included."""
    tree = Tree(experience)
    whole = [replace(leaf, decisions=tree.path(leaf), origin=None) for leaf in tree.leaves]
    return replace(experience, mains=tuple(whole), branches=(), forks=())


def _leaves_below(experience: TaskExperience) -> dict[str, np.ndarray]:
    tree = Tree(experience)
    return {t.key: np.array([len(tree.below(t, step)) for step in range(t.steps)]) for t in experience.trajectories}


def test_tree_grpo_is_its_leaves_replayed_whole(experience: TaskExperience) -> None:
    """Met once with the mean over the leaves below, times their number: the same as met once for each of them."""
    shared, below = ESTIMATORS["tree_grpo"](experience), _leaves_below(experience)
    assert max(counts.max() for counts in below.values()) > 2
    weighted = Credit({key: values * below[key] for key, values in shared.values.items()})
    whole, leaves = _unshared(experience), leaf_advantages(Tree(experience))
    unshared = Credit({t.key: np.full(t.steps, leaves[t.key]) for t in whole.mains})
    assert len(make_batch([whole], [unshared]).actions) > len(make_batch([experience], [weighted]).actions)  # type: ignore[union-attr]
    torch.testing.assert_close(_gradient(experience, weighted), _gradient(whole, unshared), rtol=1e-4, atol=1e-5)


def test_treerl_is_its_leaves_replayed_whole(experience: TaskExperience) -> None:
    """A replayed step has the advantage of its node in every leaf, so the whole weighs the number of leaves below."""
    shared, below = ESTIMATORS["treerl"](experience), _leaves_below(experience)
    weighted = Credit({key: values * below[key] for key, values in shared.values.items()})
    tree, whole = Tree(experience), _unshared(experience)
    values = {}
    for leaf in tree.leaves:
        origin = leaf.origin
        prefix = np.array([]) if origin is None else shared.values[tree.parent(origin).key][: origin.step]
        values[leaf.key] = np.concatenate([prefix, shared.values[leaf.key]])
    torch.testing.assert_close(_gradient(experience, weighted), _gradient(whole, Credit(values)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_no_decision_is_in_a_batch_twice(name: str, experience: TaskExperience) -> None:
    credit = ESTIMATORS[name](experience)
    ones = Credit({key: np.ones_like(values) for key, values in credit.values.items()})
    batch = make_batch([experience], [ones])
    decisions = [id(d) for t in experience.trajectories if t.key in ones.values for d in t.decisions]
    assert batch is not None
    assert len(batch) == len(decisions) == len(set(decisions))
