"""The joint between a run and what is played: the right one is opened, a trainer that does not fit is named."""

import pytest
from refork.cluster.family import open_family
from refork.envs.forkable import BadInput
from refork.trainers.config import JobConfig


def _job(env: str, kind: str) -> JobConfig:
    agent = "cross_graph" if kind == "pmd" else "edit_scorer"
    return JobConfig.model_validate({"env": {"id": env}, "trainer": {"kind": kind}, "agent": {"kind": agent}})


@pytest.mark.parametrize(
    ("env", "kind", "experience"),
    [("refork/Chain-v0", "grpo", "tasks"), ("refork/GraphGame-v0", "pmd", "games")],
)
def test_a_family_gives_what_its_trainers_learn_from(env: str, kind: str, experience: str) -> None:
    family = open_family(_job(env, kind))
    assert family.experience == experience
    assert family.names("train")
    family.close()


@pytest.mark.parametrize(
    ("env", "kind", "message"),
    [
        ("refork/GraphGame-v0", "crr", "crr learns from tasks, but refork/GraphGame-v0 gives games; choose .*pmd"),
        ("refork/Chain-v0", "pmd", "pmd learns from games, but refork/Chain-v0 gives tasks; choose crr or grpo"),
        ("refork/GraphGame-v1", "pmd", r"env\.id: no environment 'refork/GraphGame-v1'; did you mean refork/GraphG"),
    ],
)
def test_what_does_not_fit_is_one_line(env: str, kind: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_family(_job(env, kind))


def test_a_guarded_run_says_which_costs_are_over_their_budget() -> None:
    from refork.cluster.log_family import LogFamily

    job = JobConfig.model_validate({"env": {"id": "refork/IcuSepsis-v0"}, "trainer": {"kind": "ogsrl"}})
    row = {"cost/ood": 0.03, "budget/ood": 0.02, "cost/o:SpO2 < 92": 0.01, "budget/o:SpO2 < 92": 0.02}
    assert LogFamily(job).headline([row]) == ["over budget: ood 0.030 of 0.020"]
