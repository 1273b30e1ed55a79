"""Job files: every shipped one is parsed, and the model refuses what makes no sense."""

import subprocess
import sys
import tomllib
from importlib.resources import files
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError
from refork.envs.chain import START, ChainEnv
from refork.replay.fork_points import BISECT, RULES
from refork.trainers.config import JobConfig, algorithms, trainer_config_class
from refork.trainers.crr.advantages import CrrForm
from refork.trainers.crr.config import AlgorithmConfig
from refork.trainers.make import AGENTS, make_trainer

from tests.trainers.logs import log_for, shape_of

RECIPES = sorted(p.name for p in files("refork.trainers.recipes").iterdir() if p.name.endswith(".toml"))


def _recipe(name: str) -> dict[str, Any]:
    return tomllib.loads((files("refork.trainers.recipes") / name).read_text())


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_a_job_named_like_its_file(name: str) -> None:
    job = JobConfig.model_validate(_recipe(name))
    assert f"{job.name}.toml" == name
    assert JobConfig.model_validate(job.model_dump(mode="json")) == job
    assert not set(job.env.held_out) & {*job.env.validation, *job.env.train}


def test_the_chain_recipe_starts_where_the_chain_says() -> None:
    prior = _recipe("chain_small.toml")["agent"]["options"]["prior"]
    assert [prior[name] for name in ChainEnv.feature_names] == pytest.approx(START.tolist(), abs=1e-9)


@pytest.mark.parametrize("kind", algorithms())
def test_every_algorithm_has_a_config_and_a_trainer(kind: str) -> None:
    assert trainer_config_class(kind)(kind=kind).kind == kind
    agent = AGENTS[trainer_config_class(kind).learns_from]
    job = JobConfig.model_validate({"trainer": {"kind": kind}, "agent": {"kind": agent}})
    assert type(job.trainer) is trainer_config_class(kind)
    told: dict[str, Any] = {"edit_scorer": ("a", "b"), "cross_graph": (("a", "b"), ("c",))}
    if agent == "q_networks":
        told[agent] = shape_of(log_for(job.trainer.takes[0], observes=job.trainer.observes[0]))
    trainer = make_trainer(job, told[agent])
    assert all(isinstance(array, np.ndarray) for array in trainer.weights().values())
    trainer.load_state_dict(trainer.state_dict())


def test_the_algorithms_are_those_of_the_issue() -> None:
    assert {"crr", "grpo"} <= set(algorithms())


def test_configs_import_neither_torch_nor_numpy_nor_ray() -> None:
    code = (
        "import sys; from refork.trainers.config import JobConfig; JobConfig(trainer={'kind': 'crr'});"
        "print([m for m in ('torch', 'ray', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("section", "where"),
    [
        ({"kind": "crr", "rule": "entorpy"}, "rule"),
        ({"kind": "crr", "forks_min": 3.0, "forks_max": 2.0}, "forks_min"),
        ({"kind": "crr", "forks": 8.5}, "forks"),
        ({"kind": "crr", "learning_rate": 0.0}, "learning_rate"),
        ({"kind": "crr", "estimator": "rloo"}, "estimator"),
        ({"kind": "grpo", "forks": 3}, "forks"),
        ({"kind": "grpo", "group": 1}, "nothing to be compared with"),
        ({"kind": "crr", "group": 1}, "never forked"),
        ({"kind": "ppo"}, "no algorithm 'ppo'; there are: .*crr"),
    ],
)
def test_what_makes_no_sense_is_refused(section: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        JobConfig.model_validate({"trainer": section})


def test_the_rules_of_the_config_are_those_there_are() -> None:
    assert set(get_args(AlgorithmConfig.model_fields["rule"].annotation)) == {*RULES, BISECT}


def test_defaults_of_config_and_estimator_agree() -> None:
    config, form = AlgorithmConfig(), CrrForm()
    assert {name: getattr(config, name) for name in vars(form)} == vars(form)


def test_every_field_has_its_help() -> None:
    for kind in algorithms():
        for name, field in trainer_config_class(kind).model_fields.items():
            assert field.description, f"{kind}.{name}"


def test_a_trainer_is_not_given_an_agent_it_cannot_train() -> None:
    assert JobConfig.model_validate({"trainer": {"kind": "pmd"}}).agent.kind == "cross_graph"
    job = JobConfig.model_validate({"trainer": {"kind": "pmd"}, "agent": {"kind": "edit_scorer"}})
    with pytest.raises(ValueError, match=r"agent\.kind 'edit_scorer': trainer pmd trains cross_graph"):
        make_trainer(job, ("a", "b"))


@pytest.mark.parametrize(
    "section",
    [{"cluster": {"address": "auto"}}, {"rollout": {"max_staleness": 1}}, {"rollout": {"resources": {"sandbox": 1.0}}}],
)
def test_what_rllib_would_ignore_is_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="RLlib places and plays by itself, on this machine"):
        JobConfig.model_validate({"trainer": {"kind": "rllib"}, **section})


def test_nothing_is_played_ahead_of_a_log() -> None:
    with pytest.raises(ValueError, match=r"rollout\.max_staleness: nothing is played ahead"):
        JobConfig.model_validate({"trainer": {"kind": "cql"}, "rollout": {"max_staleness": 1}})
