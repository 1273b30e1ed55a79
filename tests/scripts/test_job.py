"""Jobs from files and flags: typed values, and errors that name file, key and the nearest right one."""

from pathlib import Path

import pytest
from refork.cluster.tasks import task_source
from refork.envs.forkable import BadInput
from refork.scripts.job import find_job, known_keys, read_job, recipes
from refork.trainers.config import EnvConfig, kinds

JOB = """
name = "x"
[env]
id = "refork/Chain-v0"
[trainer]
kind = "crr"
updates = 7
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    return str(path)


def test_a_file_fills_the_model(job: str) -> None:
    config = read_job(job)
    assert (config.name, config.env.id, config.trainer.kind, config.trainer.updates) == (
        "x",
        "refork/Chain-v0",
        "crr",
        7,
    )
    assert config.seed == 0


def test_flags_are_laid_over_with_the_type_of_the_field(job: str) -> None:
    flags = (
        "--name 3 --seed=5 --trainer.learning-rate 1e-3 --env.cache false --env.train a,b --env.held_out ['c'] "
        "--evaluate.pass_k [1,2] --runs elsewhere --env.options.length 9 --agent.options.hidden [] "
        "--agent.options.label plain"
    )
    config = read_job(job, flags.split())
    assert config.name == "3"
    assert config.seed == 5
    assert config.trainer.learning_rate == 1e-3
    assert config.env.cache is False
    assert (config.env.train, config.env.held_out) == (("a", "b"), ("c",))
    assert config.evaluate.pass_k == (1, 2)
    assert config.runs == Path("elsewhere")
    assert config.env.options == {"length": 9}
    assert config.agent.options == {"hidden": [], "label": "plain"}


def test_a_bare_flag_is_true_for_a_switch_only(job: str) -> None:
    assert read_job(job, ["--env.cache"]).env.cache is True
    with pytest.raises(BadInput, match=r"^--seed: needs a value$"):
        read_job(job, ["--seed"])


def test_the_algorithm_may_come_from_a_flag(job: str) -> None:
    assert read_job(job, ["--trainer.kind", "grpo"]).trainer.kind == "grpo"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "[trainer]\nlerning_rate = 1",
            r"job\.toml: trainer\.lerning_rate: unknown key; did you mean trainer\.learning_rate",
        ),
        ("sed = 1", r"job\.toml: sed: unknown key; did you mean seed\?"),
        ("[envs]\nid = 1", r"job\.toml: envs: unknown key"),
        ("[checkpoint]\nevery = 0", r"job\.toml: checkpoint\.every: input should be greater than or equal to 1, got 0"),
        ('[checkpoint]\nevery = "x"', r"job\.toml: checkpoint\.every: input should be a valid integer.*, got 'x'"),
        (
            '[tracking]\nwandb = "yes"',
            r"tracking\.wandb: input should be 'auto', 'online', 'offline' or 'off', got 'yes'",
        ),
        ('[trainer]\nkind = "crrr"', r"job\.toml: trainer\.kind: no algorithm 'crrr'; did you mean crr\?"),
        ("trainer = 3", r"job\.toml: trainer: must be a table"),
        ("seed = ", r"job\.toml: not valid TOML: Invalid value"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "job.toml"
    path.write_text(line)
    with pytest.raises(BadInput, match=message):
        read_job(str(path))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--trainer.fork", "1"], r"^--trainer\.fork: unknown key; did you mean trainer\.forks\?$"),
        (["--learning_rate", "1"], r"^--learning_rate: unknown key; did you mean trainer\.learning_rate\?$"),
        (["--seed", "x"], r"^--seed: input should be a valid integer.*got 'x'$"),
        (["--seed.x", "3"], r"^--seed\.x: "),
        (["--seed", "-1"], r"^--seed: input should be greater than or equal to 0, got -1$"),
        (["--name", "a/b"], r"^--name: string should match pattern .*, got 'a/b'$"),
        (["--trainer.updates", "2", "--trainer.group", "1"], r"job\.toml: trainer: group: a rollout alone .* or more$"),
        (["--resum"], r"^--resum: unknown key; did you mean --resume\?$"),
        (["3"], r"^unexpected argument '3'"),
    ],
)
def test_what_is_wrong_in_a_flag_is_named_as_typed(job: str, flags: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_job(job, flags)


def test_not_utf8_and_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(BadInput, match="not valid TOML"):
        read_job(str(path))


@pytest.mark.parametrize("name", recipes())
def test_every_shipped_recipe_is_a_valid_job(name: str) -> None:
    assert read_job(name).name == name
    assert find_job(name).name == f"{name}.toml"


@pytest.mark.parametrize("kind", kinds())
def test_every_key_has_a_help_text(kind: str) -> None:
    assert [key for key, text in known_keys(kind).items() if not text] == []


def test_a_run_is_no_job_but_can_be_resumed(job: str) -> None:
    with pytest.raises(BadInput, match="is the folder of a run; add --resume"):
        read_job(str(Path(job).parent))


@pytest.mark.parametrize("value", [0, -4, "big", 1.5, True])
def test_options_of_an_environment_are_whole_numbers(value: object) -> None:
    with pytest.raises(BadInput, match=r"^env\.options\.length: must be a whole number from 1, got "):
        task_source(EnvConfig(id="refork/Chain-v0", options={"length": value}))


def test_a_key_of_another_algorithm_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"trainer\.guardian.*cql has no such key; it is one of ogsrl"):
        read_job("sepsis_small", ["--trainer.kind", "cql", "--trainer.guardian", "false"])
    with pytest.raises(BadInput, match=r"did you mean trainer\.seeds\?"):
        read_job("sepsis_small", ["--seeds", "3"])


def test_paths_are_whole_so_that_a_run_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").touch()
    job = read_job("cohort_small", ["--env.tasks", "cohort.csv", "--env.options.schema_file", "s.toml"])
    assert job.env.tasks == tmp_path / "cohort.csv"
    assert job.env.options["schema_file"] == str(tmp_path / "s.toml")
    shipped = read_job("cohort_small", ["--env.options.schema_file", "mimic_sepsis"])
    assert shipped.env.options["schema_file"] == "mimic_sepsis"
