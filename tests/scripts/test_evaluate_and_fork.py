"""Judging a checkpoint and going back into a recorded rollout, as a person does it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from refork.cluster.attributing import attribute
from refork.envs.chain import make_task
from refork.replay.store import TrajectoryStore
from refork.replay.trajectory import Trajectory
from refork.scripts.cli import main

from tests.scripts.commands import refork, run_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run long enough that the chain is learned a good way."""
    folder = tmp_path_factory.mktemp("learned")
    done = refork(folder, "train", "chain_small", "--trainer.updates", "100")
    assert done.returncode == 0, done.stderr
    return run_folder(folder)


def _rollout(run: Path) -> Trajectory:
    """A resolved main rollout of the last update."""
    store = TrajectoryStore(run / "trajectories")
    mains = [m for g in store.read(store.updates()[-1]) for m in g.mains]
    return next(m for m in mains if m.value == 1.0)


def test_evaluating_shows_and_writes_what_was_gained(run: Path) -> None:
    done = refork(run, "evaluate", str(run), "--attempts", "2", "--tasks", "60")
    assert done.returncode == 0, done.stderr
    data = json.loads((run / "evaluation-held_out.json").read_text())
    assert (data["step"], data["split"]) == (100, "held_out")
    results = {(r["policy"], r["mode"]): r for r in data["results"]}
    assert list(results) == [(p, m) for p in ("trained", "untrained") for m in ("sampled", "greedy")]
    before, after = results["untrained", "sampled"]["resolved"], results["trained", "sampled"]["resolved"]
    assert before["high"] < after["low"]
    assert results["trained", "sampled"]["attempts"] == 120
    shown = f"{after['estimate']:.3f} [{after['low']:.3f}, {after['high']:.3f}]"
    assert re.search(rf"trained +│ sampled +│ {re.escape(shown)}", done.stdout)
    assert results["trained", "greedy"]["attempts"] == 60


def test_evaluating_again_says_the_same(run: Path, tmp_path: Path) -> None:
    checkpoint = str(run / "checkpoints" / "step-00000100")
    for name in ("a", "b"):
        asked = ("--attempts", "1", "--tasks", "20", "--no-baselines", "--split", "validation", "--out", name)
        assert refork(tmp_path, "evaluate", checkpoint, *asked).returncode == 0
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()


def test_an_out_file_that_cannot_be_is_said_before_playing(run: Path, tmp_path: Path) -> None:
    done = refork(tmp_path, "evaluate", str(run), "--out", str(tmp_path / "none" / "x.json"))
    assert done.returncode == 2
    assert "there is no folder" in done.stderr
    assert "playing" not in done.stderr


def test_forking_shows_both_returns_and_their_difference(run: Path, tmp_path: Path) -> None:
    rollout = _rollout(run)
    which = (rollout.task, "--episode", str(rollout.episode), "--attempt", str(rollout.attempt))
    done = refork(tmp_path, "fork", str(run), *which, "--step", "3", "-n", "4")
    assert done.returncode == 0, done.stderr
    assert f"taken {rollout.decisions[3].action} (p" in done.stdout
    assert done.stdout.count("instead ") == 4
    assert f"before: {' '.join(str(d.action) for d in rollout.decisions[:3])}" in done.stdout
    returns = [float(x) for x in re.findall(r"return (\d+)$", done.stdout, re.MULTILINE)]
    shown = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines()[-3:])
    assert returns[0] == 1.0
    assert float(shown["mean return of 4 alternatives"]) == pytest.approx(sum(returns[1:]) / 4, abs=1e-3)
    assert float(shown["differential"]) == pytest.approx(1 - sum(returns[1:]) / 4, abs=1e-3)


def test_the_taken_action_played_again_at_the_last_step_returns_the_same(run: Path, tmp_path: Path) -> None:
    rollout = _rollout(run)
    last = rollout.decisions[-1].action
    which = (rollout.task, "--episode", str(rollout.episode), "--attempt", str(rollout.attempt))
    done = refork(tmp_path, "fork", str(run), *which, "--step", "19", "--action", str(last), "-n", "2")
    assert done.stdout.splitlines()[-1] == "differential: +0.000"


def _lost(rollout: Trajectory) -> int:
    """The first critical decision that is wrong: after it nothing can be won."""
    task = make_task(rollout.task)
    wrong = [d.action != right for d, right in zip(rollout.decisions, task.right, strict=True)]
    return int((np.array(wrong) & task.critical).argmax())


def test_the_decision_that_lost_a_rollout_is_found_and_corrected(run: Path, tmp_path: Path) -> None:
    store = TrajectoryStore(run / "trajectories")
    played = [g for update in store.updates()[-4:] for g in store.read(update)]
    failed = [m for g in played if sum(t.value or 0 for t in g.mains) > 0 for m in g.mains if m.value == 0.0][:12]
    found = [attribute(run, m.task, None, m.episode, m.attempt, 2, 300, 0) for m in failed]
    right = [bool(f.suspects) and f.suspects[0].step == _lost(f.rollout) for f in found]
    assert sum(right) >= 0.75 * len(failed) >= 6  # 90 % sure at best
    for one in (f for f, is_right in zip(found, right, strict=True) if is_right):
        corrections = one.suspects[0].corrections
        assert max(c.action for c in corrections if c.value == one.suspects[0].restored) in range(4)
        assert one.forks == one.answers.asked + 2 * sum(len(s.corrections) for s in one.suspects)
    assert np.median([f.answers.asked for f in found]) < 8 * 20 / 2  # one by one, 8 from each state, would be 160


def test_attribution_shows_a_ranked_table_and_says_how_sure_it_is(run: Path, tmp_path: Path) -> None:
    store = TrajectoryStore(run / "trajectories")
    rollout = next(m for g in store.read(store.updates()[-1]) for m in g.mains if m.value == 0.0)
    which = (rollout.task, "--episode", str(rollout.episode), "--attempt", str(rollout.attempt))
    done = refork(tmp_path, "fork", str(run), *which, "--attribute", "-n", "3")
    assert done.returncode == 0, done.stderr
    again = refork(tmp_path, "fork", str(run), *which, "--attribute", "-n", "3")
    assert again.stdout == done.stdout
    shown = re.search(r"decision (\d+) lost it \((0\.\d+|1\.00) sure\)", done.stdout)
    assert shown
    assert re.search(rf"│ 1 +│ {shown[1]} +│ {shown[2]} +│ {rollout.decisions[int(shown[1])].action} ", done.stdout)
    assert "(n = 3)" in done.stdout


def test_without_an_episode_the_newest_failed_rollout_is_attributed(run: Path) -> None:
    store = TrajectoryStore(run / "trajectories")
    failed = next(m for g in store.read(store.updates()[-1]) for m in g.mains if m.value == 0.0)
    assert store.find_failed(failed.task).episode == failed.episode
    assert attribute(run, failed.task, None, None, None, 1, 1, 0).rollout.value == 0.0


def test_a_hopeless_policy_is_said_and_not_a_decision(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With hardly a fork nothing can be known: no table, and the belief is printed as it is."""
    store = TrajectoryStore(run / "trajectories")
    failed = next(m for g in store.read(store.updates()[-1]) for m in g.mains if m.value == 0.0)
    assert main(["fork", str(run), failed.task, "--attribute", "--forks", "1"]) == 0
    assert "no decision lost it (0." in capsys.readouterr().out


def test_a_rollout_that_did_not_fail_has_no_lost_decision(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rollout = _rollout(run)
    which = ("--episode", str(rollout.episode), "--attempt", str(rollout.attempt))
    assert main(["fork", str(run), rollout.task, "--attribute", *which]) == 2
    assert "returned +1.000: nothing was lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((), "--step: give the decision to go back to, or --attribute"),
        (("--attribute", "--step", "1"), "--attribute: finds the decision itself"),
        (("--attribute", "--forks", "0"), "--forks: must be at least 1, got 0"),
        (("--step", "99"), "has decisions 0 to 19"),
        (("--step", "1", "--action", "9"), "--action 9: not possible in this state; possible are: 0, 1, 2, 3"),
        (("--step", "1", "--episode", "77"), "no trajectory of"),
        (("--step", "1", "-n", "0"), "-n: must be at least 1, got 0"),
        (("--step", "1", "--policy", "/nowhere"), "/nowhere: no such checkpoint or run"),
    ],
)
def test_what_is_not_there_is_said(
    run: Path, asked: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fork", str(run), _rollout(run).task, *asked]) == 2
    assert message in capsys.readouterr().err
