"""The main job as a person runs it: train on real sandboxes with a Ray actor, judge, go back, clean up."""

import json
import re
from pathlib import Path

import pytest
from refork.replay.store import TrajectoryStore

from tests.envs.swe.toy import toy_tasks
from tests.scripts.commands import refork, run_folder

TASK = "toy-arithmetic"
JOB = ("--trainer.updates", "2", "--trainer.tasks_per_update", "1", "--trainer.group", "3", "--rollout.actors", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that a short run was made in."""
    folder = tmp_path_factory.mktemp("repair")
    (folder / "set").mkdir()
    toy_tasks(folder / "set", "arithmetic")
    done = refork(folder, "train", "repair_small", "--env.tasks", "set", *JOB, timeout_s=240)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_run_leaves_metrics_a_checkpoint_and_a_wandb_record(folder: Path) -> None:
    run = run_folder(folder)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row["infra_errors"] == row["timeouts"] == 0 for row in rows)
    assert (run / "checkpoints" / "step-00000002" / "COMMIT").exists()
    assert list((run / "wandb").rglob("*.wandb"))


def test_what_was_executed_once_is_not_executed_again(folder: Path) -> None:
    first, second = ([t for g in groups for t in g.trajectories] for groups in _recorded(folder))
    assert sum(t.steps_executed for t in first) > 0
    assert sum(t.steps_executed for t in second) < sum(t.steps_executed for t in first)


def _recorded(folder: Path) -> list:
    store = TrajectoryStore(run_folder(folder) / "trajectories")
    return [store.read(update) for update in store.updates()]


def test_the_run_can_be_judged_and_gone_back_into(folder: Path) -> None:
    run = run_folder(folder)
    done = refork(folder, "evaluate", str(run), "--split", "train", "--attempts", "2", timeout_s=240)
    assert done.returncode == 0, done.stderr
    results = json.loads((run / "evaluation-train.json").read_text())["results"]
    assert {(r["policy"], r["mode"]) for r in results} >= {("trained", "sampled"), ("ochiai_greedy", "greedy")}
    assert next(r for r in results if r["policy"] == "ochiai_greedy")["resolved"]["estimate"] == 1.0
    done = refork(folder, "fork", str(run), TASK, "--step", "0", "-n", "2", timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert "differential: " in done.stdout


def test_a_failed_repair_is_attributed(folder: Path) -> None:
    """In real sandboxes. A policy that prefers nothing fails often enough."""
    blind = ("--name", "blind", "--agent.options.prior.prior", "0", "--trainer.updates", "1")
    done = refork(folder, "train", "repair_small", "--env.tasks", "set", *JOB, *blind, timeout_s=240)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").glob("blind-*")
    done = refork(folder, "fork", str(run), TASK, "--attribute", "-n", "1", timeout_s=240)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert re.search(rf"^{TASK}/0/\d: \d+ decisions, return \+0\.000; \d+ continuations from \d+ of its states", told)
    assert re.search(r"decision \d+ lost it|no decision lost it", told)


def test_nothing_but_what_is_kept_for_the_next_run_is_left(folder: Path) -> None:
    done = refork(folder, "clean")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (folder / ".refork" / "layers").iterdir()) in (["lock", "root"], ["lock"])
