"""The trainer kind `tree`: every estimator trains on the chain; what it asks for; what its config refuses."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError
from refork.envs.chain import ChainEnv
from refork.replay.counterfactual import ForkConfig
from refork.replay.fork_points import RULES
from refork.trainers.config import JobConfig
from refork.trainers.estimators.registry import ESTIMATORS
from refork.trainers.tree.config import SAMPLING, USES, AlgorithmConfig
from refork.trainers.tree.trainer import forks_of

from tests.trainers.chain_run import ChainCollector, chain_job, chain_loop, weights_of

NAMES = get_args(AlgorithmConfig.model_fields["estimator"].annotation)
BASES = get_args(AlgorithmConfig.model_fields["base"].annotation)
DRAWN = ForkConfig("all", "entropy", 2.0, 2, actions="policy")


class ShortChain(ChainEnv):
    """Six decisions, so that forks everywhere stay cheap."""

    def __init__(self, task: str) -> None:
        super().__init__(task, length=6)


def _run(**trainer: Any) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Weights before and after two updates, and the last row of metrics."""
    job = chain_job("tree", tasks_per_update=4, updates=2, **trainer)
    loop, rows = chain_loop(job, tasks=8, collector=ChainCollector(ShortChain))
    before = weights_of(loop)
    loop.run()
    return before, weights_of(loop), rows.rows[-1][1]


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_trains(name: str) -> None:
    before, after, row = _run(estimator=name)
    assert (before != after).any()
    assert np.isfinite(after).all()
    assert (row["skipped_update"], row["branches"] > 0) == (0.0, name not in ("gigpo", "rtmc"))
    assert row["loss/policy_main"] == pytest.approx(row["loss/total"] - row["loss/policy_branch"], abs=1e-5)


@pytest.mark.parametrize("base", BASES)
def test_cost_aware_trains_on_every_base(base: str) -> None:
    before, after, row = _run(estimator="cost_aware", base=base, share=0.5)
    assert (before != after).any()
    assert row["dropped_steps"] > 0
    assert row["decisions"] == row["sampled_steps"]


def test_a_run_can_be_repeated_to_the_bit() -> None:
    runs = [_run(estimator="cost_aware", base="branpo")[1] for _ in range(2)]
    assert (runs[0] == runs[1]).all()


def test_estimators_and_their_options_are_those_of_the_registry() -> None:
    """All but crr, which is a trainer of its own; groups without forks or merges are `grpo`'s, or cost_aware's base."""
    assert set(BASES) == set(USES) == set(ESTIMATORS) - {"crr", "cost_aware"}
    assert set(NAMES) == set(ESTIMATORS) - {"crr", "grpo", "dr_grpo", "rloo", "maxrl"}
    config = AlgorithmConfig()
    for name, used in USES.items():
        options = vars(ESTIMATORS[name].options())
        assert set(options) <= set(used)
        assert {key: getattr(config, key) for key in options} == options
    assert {*vars(ESTIMATORS["cost_aware"].options())} - {"seed"} == set(SAMPLING)
    assert set(get_args(AlgorithmConfig.model_fields["rule"].annotation)) == set(RULES)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"estimator": "gigpo"}, None),
        ({"estimator": "rtmc"}, None),
        ({"estimator": "cost_aware", "base": "rloo"}, None),
        ({"estimator": "vineppo"}, replace(DRAWN, alternatives=9, every=1)),
        ({"estimator": "spo", "segment": 4, "alternatives": 3}, replace(DRAWN, alternatives=3, every=4)),
        ({"estimator": "treerl", "rule": "uniform", "floor": 0.1}, replace(DRAWN, rule="uniform", floor=0.1)),
        ({"estimator": "branpo", "forks": 3.0}, replace(DRAWN, rule="late", forks=3.0, by_difficulty=True)),
        ({"estimator": "cost_aware", "base": "tree_grpo", "noise": "same"}, replace(DRAWN, noise="same")),
    ],
)
def test_what_is_forked_follows_the_estimator(section: dict[str, Any], expected: ForkConfig | None) -> None:
    assert forks_of(AlgorithmConfig.model_validate(section)) == expected


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"estimator": "gigpo", "forks": 3.0}, "forks: gigpo does not read it"),
        ({"estimator": "vineppo", "rule": "uniform"}, "rule: vineppo does not read it"),
        ({"estimator": "treerl", "beta": 0.5}, "beta: treerl does not read it"),
        ({"estimator": "treerl", "share": 0.1}, "share: treerl does not read it"),
        ({"estimator": "cost_aware", "base": "rtmc", "segment": 2}, "segment: rtmc does not read it"),
        ({"estimator": "crr"}, "estimator"),
        ({"estimator": "gigpo", "group": 1}, "compared with nothing"),
        ({"estimator": "treerl", "which": "mixed", "group": 1}, "compared with nothing"),
    ],
)
def test_what_would_have_no_effect_is_refused(section: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        JobConfig.model_validate({"trainer": {"kind": "tree", **section}})


@pytest.mark.parametrize("name", NAMES)
def test_a_job_is_read_back_as_it_was_written(name: str) -> None:
    job = JobConfig.model_validate({"trainer": {"kind": "tree", "estimator": name}})
    assert JobConfig.model_validate(job.model_dump(mode="json")) == job
