"""The command as a whole: help at once, one line for what is wrong, exit codes."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from refork.scripts.cli import main

from tests.scripts.commands import environment, refork

COMMANDS = ("train", "evaluate", "fork", "tasks", "sync", "clean", "doctor")

_WATCHED = """
import sys
from refork.scripts.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"torch", "ray", "wandb", "docker", "gymnasium"})
print("HEAVY", heavy)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("train", "--help"),
        ("evaluate", "--help"),
        ("fork", "--help"),
        ("train", "chain_small", "--dry-run"),
    ],
)
def test_help_and_dry_runs_import_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", _WATCHED, *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "HEAVY []", done.stdout


def _cpu_seconds() -> float:
    """Of children that ended: unlike wall time it does not depend on what else runs here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _timed(folder: Path, *arguments: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """CPU seconds, the least of three runs: what shares a core or its cache doubles a single one; the last run."""
    seconds = []
    for _ in range(3):
        begun = _cpu_seconds()
        done = refork(folder, *arguments)
        seconds.append(_cpu_seconds() - begun)
    return min(seconds), done


def test_help_names_every_command_in_half_a_second(tmp_path: Path) -> None:
    seconds, done = _timed(tmp_path, "--help")
    assert seconds < 0.5
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)


def test_a_dry_run_takes_half_a_second_and_leaves_nothing(tmp_path: Path) -> None:
    seconds, done = _timed(tmp_path, "train", "chain_small", "--seed", "7", "--dry-run")
    assert seconds < 0.5
    assert done.stdout.splitlines()[:2] == ['name = "chain_small"', "seed = 7"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trian",), 'Unknown command "trian". Did you mean "train"?'),
        (("train",), 'Command "train" parameter JOB requires an argument.'),
        (("train", "nowhere.toml"), "nowhere.toml: no such job file, nor a recipe of that name"),
        (("train", "chain_smal"), "did you mean chain_small?"),
        (("train", "--seed", "3", "chain_small"), "Keys of the job are given after the job file"),
        (("train", "chain_small", "--trainer.lerning_rate", "1"), "did you mean trainer.learning_rate?"),
        (("train", "chain_small", "--dryrun"), "--dryrun: unknown key; did you mean --dry-run?"),
        (("train", "chain_small", "--agent.kind", "nobody"), "agent.kind 'nobody': trainer crr trains edit_scorer"),
        (("train", "chain_small", "--env.id", "refork/Chan-v0"), "did you mean refork/Chain-v0?"),
        (
            ("train", "chain_small", "--env.options.lenth", "3"),
            "env.options.lenth: the environment has no such",
        ),
        (("train", "chain_small", "--rollout.actors", "999"), "999 actors need as many CPU cores"),
        (("train", "chain_small", "--resume"), "no run named chain_small to resume"),
        (("evaluate", "nowhere"), "nowhere: no such checkpoint or run"),
        (("evaluate", "nowhere", "--split", "held"), 'Did you mean "held_out"'),
        (("fork", "nowhere", "chain-1", "--step", "0"), "nowhere: not the folder of a run"),
        (
            ("train", "chain_small", "--tracking.wandb", "online"),
            "tracking.wandb: online needs a key: set WANDB_API_KEY",
        ),
        (("train", "repair_small", "--env.backend", "e2b"), "the e2b backend needs a key: set E2B_API_KEY"),
        *(
            (("train", "chain_small", "--storage", url, *more), f"{hidden}: holds a password, which would be kept")
            for url, hidden in (
                ("s3://KEY:HIDDEN@bucket/runs", "s3://***@bucket/runs"),
                ("s3://KEY:HID/DEN@bucket/runs", "s3://***@bucket/runs"),
                ("sftp://me:word@host/runs", "sftp://***@host/runs"),
            )
            for more in ((), ("--dry-run",))
        ),
        (("train", "s3://KEY:HIDDEN@bucket/runs/a", "--resume"), "s3://***@bucket/runs/a: holds a password"),
        (("clean", "--al"), "Unknown option: --al."),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path,
    arguments: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for key in ("WANDB_API_KEY", "E2B_API_KEY", "NETRC"):
        monkeypatch.delenv(key, raising=False)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "HIDDEN" not in said
    assert message in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_command_itself_has_that_exit_code_and_no_traceback(tmp_path: Path) -> None:
    done = refork(tmp_path, "train", "chain_small", "--trainer.updates", "0")
    assert done.returncode == 2
    assert done.stderr == "refork: --trainer.updates: input should be greater than or equal to 1, got 0\n"


def test_clean_says_what_it_removed(tmp_path: Path) -> None:
    done = refork(tmp_path, "clean", DOCKER_HOST="unix:///nowhere.sock")
    assert done.returncode == 0
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    assert list(found)[:3] == ["ray folders", "owners of sandbox layers", "containers"]
    assert found["owners of sandbox layers"] == found["containers"] == "nothing to remove"


def test_clean_does_not_call_nothing_what_it_could_not_ask_for(tmp_path: Path) -> None:
    pytest.importorskip("e2b")
    nowhere = {"E2B_API_KEY": "e2b_" + "0" * 40, "E2B_API_URL": "http://127.0.0.1:9"}
    done = refork(tmp_path, "clean", DOCKER_HOST="unix:///nowhere.sock", **nowhere)
    assert done.returncode == 0
    assert "the e2b service cannot be asked" in done.stderr
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    for kind in ("sandboxes and snapshots of the e2b service", "unused copies of workspaces in the e2b service"):
        assert found[kind] == "could not be asked, so what is there stays; run it again later"


@pytest.mark.ray
def test_doctor_says_what_works_and_what_to_do_about_the_rest(tmp_path: Path) -> None:
    done = refork(tmp_path, "doctor", DOCKER_HOST="unix:///nowhere.sock")
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    found = {row[1]: row for row in rows if row[0]}
    assert found["docker daemon"][2] == "no"
    assert found["docker daemon"][4].startswith("start a Docker daemon")
    assert found["W&B"][2:4] == ["ok", found["W&B"][3]]
    assert "offline" in found["W&B"][3]
    assert "loopback only, with a token" in found["Ray"][3]
    assert found["icu-sepsis"][2] == "ok"
    works = done.stdout.splitlines()[-1]
    assert works.startswith("sandbox backends that work here: ")
    assert done.returncode == (1 if works.endswith("none") else 0)


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m refork.scripts.cli train chain_small --dry-run | true"
    done = subprocess.run(
        ["sh", "-c", command], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr == ""
