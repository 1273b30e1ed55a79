"""What a job may say of RLlib: a wrong name is refused before anything starts, with the right one beside it."""

from __future__ import annotations

from typing import Any

import pytest
from refork.cluster.rllib_run import prepare
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig

pytestmark = pytest.mark.ray

PATIENTS = {"id": "refork/SepsisSCM-v0"}
GAMES = {"id": "refork/GraphGame-v0", "options": {"domains": ["charging"], "couplings": ["regular"], "sizes": [5]}}


def job(env: dict[str, Any], more: dict[str, Any], **trainer: Any) -> JobConfig:
    return JobConfig.model_validate({"env": env, **more, "trainer": {"kind": "rllib", **trainer}})


@pytest.mark.parametrize(
    ("env", "more", "trainer", "said"),
    [
        (PATIENTS, {}, {"algorithm": "PPPO"}, r"trainer\.algorithm: RLlib has no 'PPPO'; did you mean PPO\?"),
        (PATIENTS, {}, {"options": {"training": {"lrr": 1}}}, r"training\.lrr: RLlib has no .*; did you mean lr\?"),
        (PATIENTS, {}, {"options": {"trainin": {}}}, r"options\.trainin: RLlib has no .*; did you mean training\?"),
        (PATIENTS, {}, {"options": {"debugging": {"seed": 1}}}, r"options\.debugging: is set by seed"),
        (PATIENTS, {}, {"options": {"env_runners": {"num_env_runners": 1}}}, r"is set by rollout\.actors"),
        (PATIENTS, {}, {"options": {"training": {"minibatch_size": 9000}}}, r"RLlib says: .*minibatch_size"),
        (PATIENTS, {}, {"options": {"training": {"lr": "fast"}}}, r"^trainer\.options\.training\.lr: must be a number"),
        (PATIENTS, {}, {"options": {"training": {"gamma": True}}}, r"training\.gamma: must be a number, .* got True"),
        (PATIENTS, {"agent": {"options": {"fcnet": [8]}}}, {}, r"agent\.options\.fcnet: RLlib has no such"),
        (PATIENTS, {}, {"algorithm": "PMD"}, r"PMD and cross_graph are for games"),
        (GAMES, {}, {}, r"set agent\.kind to cross_graph"),
        (GAMES, {"agent": {"kind": "cross_graph"}}, {"algorithm": "DQN"}, r"is trained by PPO or PMD"),
        (PATIENTS, {}, {"algorithm": "CQL"}, r"CQL: RLlib's needs continuous actions .* our own trainer\.kind cql"),
        ({"id": "refork/Chain-v0"}, {}, {"algorithm": "BC"}, r"BC learns from a log, refork/Chain-v0 gives none"),
        ({"id": "refork/SyntheticCohort-v0"}, {}, {}, r"SyntheticCohort-v0 is a log; choose BC or MARWIL"),
        ({"id": "refork/Chain-v0"}, {"evaluate": {"every": 1}}, {}, r"evaluate\.every: .* set it to 0"),
    ],
)
def test_what_rllib_cannot_do_is_said_first(env: Any, more: Any, trainer: Any, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        prepare(job(env, more, **trainer))


def test_options_are_rllibs_own() -> None:
    options = {"training": {"lr": 0.01, "gamma": 0.9}, "env_runners": {"num_envs_per_env_runner": 4}}
    config = prepare(job(PATIENTS, {"rollout": {"actors": 2}}, options=options)).config
    assert (config.lr, config.gamma, config.num_envs_per_env_runner, config.num_env_runners) == (0.01, 0.9, 4, 2)


def test_games_are_opened_when_they_are_drawn() -> None:
    """A thousand training games are named; the environment holds those that were played."""
    parts = prepare(job(GAMES, {"agent": {"kind": "cross_graph"}}, algorithm="PMD"))
    settings = parts.config.env_config
    assert len(settings["tasks"]) == 1000
    assert (settings["max_sites"], settings["max_nodes"]) == (5, 5)
    assert parts.config.train_batch_size_per_learner == 64 * 20
