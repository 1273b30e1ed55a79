"""The edit scorer: torch and numpy agree, masks are safe, the prior is where it starts."""

import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from refork.agents.edit_scorer import EditScorer
from refork.agents.registry import make_network, make_policy

NAMES = tuple(f"f{i}" for i in range(12))


def _network(hidden: tuple[int, ...] = (16, 8), **prior: float) -> EditScorer:
    network = make_network("edit_scorer", NAMES, {"hidden": hidden, "prior": prior}, seed=1)
    rng = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
    return network


def _observation(actions: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    mask = rng.random(actions) < 0.7
    mask[0] = True
    return {"features": rng.standard_normal((actions, len(NAMES))).astype(np.float32), "mask": mask}


def _torch(network: EditScorer, observation: dict[str, np.ndarray]) -> torch.Tensor:
    return network(torch.from_numpy(observation["features"])[None], torch.from_numpy(observation["mask"])[None])[0]


@pytest.mark.parametrize("hidden", [(), (8,), (16, 8), (64, 64)])
def test_the_acting_policy_equals_the_network(hidden: tuple[int, ...]) -> None:
    network = _network(hidden)
    policy = make_policy("edit_scorer", network.acting_weights())
    for seed, actions in enumerate((1, 2, 5, 65)):
        observation = _observation(actions, seed)
        expected = _torch(network, observation).exp().detach().numpy()
        assert policy.probabilities(observation) == pytest.approx(expected, abs=1e-6)
        assert policy.probabilities(observation).sum() == pytest.approx(1.0, abs=1e-12)
        assert (policy.probabilities(observation)[~observation["mask"]] == 0).all()


@pytest.mark.parametrize("hidden", [(), (16, 8)])
def test_untrained_it_is_the_prior(hidden: tuple[int, ...]) -> None:
    network = make_network("edit_scorer", NAMES, {"hidden": hidden, "prior": {"f3": 2.0, "f7": -1.0}}, seed=0)
    observation = _observation(9)
    logits = 2.0 * observation["features"][:, 3] - observation["features"][:, 7]
    weights = np.exp(logits) * observation["mask"]
    policy = make_policy("edit_scorer", network.acting_weights())
    assert policy.probabilities(observation) == pytest.approx(weights / weights.sum(), abs=1e-6)


def test_without_a_prior_it_starts_uniform_over_what_is_allowed() -> None:
    observation = _observation(9)
    policy = make_policy("edit_scorer", make_network("edit_scorer", NAMES, {}, seed=0).acting_weights())
    assert policy.probabilities(observation) == pytest.approx(observation["mask"] / observation["mask"].sum())


def test_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = make_network("edit_scorer", NAMES, {}, seed=5).acting_weights()
    assert (torch.get_rng_state() == before).all()
    torch.manual_seed(8)
    second = make_network("edit_scorer", NAMES, {}, seed=5).acting_weights()
    other = make_network("edit_scorer", NAMES, {}, seed=6).acting_weights()
    assert all((first[k] == second[k]).all() for k in first)
    assert not (first["layers.0.weight"] == other["layers.0.weight"]).all()


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
def test_masked_rows_change_nothing_not_even_gradients(garbage: float) -> None:
    observation = _observation(9)
    gradients = []
    for fill in (0.0, garbage):
        network = _network()
        features = observation["features"].copy()
        features[~observation["mask"]] = fill
        log_probs = _torch(network, {**observation, "features": features})
        assert log_probs[torch.from_numpy(~observation["mask"])].isinf().all()
        log_probs[0].backward()
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
        policy = make_policy("edit_scorer", network.acting_weights())
        assert np.isfinite(policy.probabilities({**observation, "features": features})).all()
    assert len(gradients[0]) == len(list(_network().parameters()))
    for clean, dirty in zip(*gradients, strict=True):
        assert torch.isfinite(clean).all()
        assert (clean == dirty).all()


def test_a_mask_without_any_action_is_an_error_that_says_so() -> None:
    observation = _observation(4)
    observation["mask"][:] = False
    network = _network()
    with pytest.raises(ValueError, match=r"leaves no action in rows \[0\]"):
        _torch(network, observation)
    with pytest.raises(ValueError, match="leaves no action"):
        make_policy("edit_scorer", network.acting_weights()).probabilities(observation)


def test_huge_features_do_not_overflow() -> None:
    observation = _observation(9)
    observation["features"] = observation["features"] * np.float32(1e6)
    policy = make_policy("edit_scorer", _network().acting_weights())
    assert policy.probabilities(observation).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": {"ochiia": 1.0}}, "prior names no feature: ochiia; there are: f0, f1"),
        ({"width": 3}, r"\[agent.options\] of edit_scorer: .*'width'"),
    ],
)
def test_wrong_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_network("edit_scorer", NAMES, options, seed=0)


def test_an_unknown_kind_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="no agent 'llm'; there are: edit_scorer, cross_graph"):
        make_policy("llm", {})


def test_exported_weights_are_copies() -> None:
    network = _network()
    weights = network.acting_weights()
    weights["skip"][:] = 0
    assert not (network.acting_weights()["skip"] == 0).any()


def test_acting_needs_no_torch() -> None:
    code = "import sys, refork.agents.registry, refork.replay.counterfactual; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_decision_over_a_whole_menu_takes_microseconds() -> None:
    names = tuple(f"f{i}" for i in range(40))
    policy = make_policy("edit_scorer", make_network("edit_scorer", names, {}, seed=0).acting_weights())
    rng = np.random.default_rng(0)
    observation = {"features": rng.standard_normal((65, 40)).astype(np.float32), "mask": np.ones(65, np.bool_)}
    best = float("inf")
    for _ in range(30):
        begun = time.perf_counter()
        for _ in range(20):
            policy.probabilities(observation)
        best = min(best, (time.perf_counter() - begun) / 20)
    assert best < 300e-6  # about 40 us on an idle core
