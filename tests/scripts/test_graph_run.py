"""Training and judging on games as a person runs it: the same commands, folder and promises as for tasks."""

import json
from pathlib import Path

import numpy as np
import pytest
from cyclopts import App
from refork.cluster.checkpoint import read
from refork.cluster.checkpoint_folder import find
from refork.cluster.game_film import film
from refork.replay.game_store import GameStore
from refork.scripts import draw_curves, draw_game
from refork.scripts.cli import main, run_app
from refork.scripts.train import FREE_ON_RESUME

from tests.scripts.commands import refork, rows, run_folder

OPTIONS = {
    "domains": "charging,vaccine",
    "sizes": "[4]",
    "evaluate_sizes": "[4, 6]",
    "instances": "10",
    "validation": "1",
    "held_out": "1",
    "horizon": "6",
    "noise": "0.2",
    "batch": "4",
}
SMALL = (
    *("graph_small", "--trainer.updates", "4", "--trainer.horizon", "4", "--trainer.warm_updates", "0"),
    *("--trainer.critic_updates", "0", "--trainer.tasks_per_update", "4", "--trainer.group", "2"),
    *("--trainer.improve_candidates", "3", "--rollout.actors", "0", "--checkpoint.every", "2"),
    *("--evaluate.every", "2", "--evaluate.attempts", "1"),
    *(word for key, value in OPTIONS.items() for word in (f"--env.options.{key}", value)),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four updates that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    done = refork(folder, "train", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "done: 32 episodes, 192 steps" in done.stdout
    return run_folder(folder)


def test_a_run_keeps_metrics_games_and_checkpoints(whole: Path) -> None:
    kept = rows(whole)
    assert [row["trajectories"] for row in kept] == [8] * 4
    assert [("validation/fraction_greedy" in row) for row in kept] == [False, True, False, True]
    assert "validation/fraction_greedy/vaccine/irregular/6" in kept[1]
    assert all(row["searched"] > 0 for row in kept)
    games = GameStore(whole / "trajectories")
    assert games.updates() == [0, 1, 2, 3]
    assert len(games.read(3)) == 8
    assert find(whole).name == "step-00000004"


@pytest.mark.ray
def test_stopped_and_resumed_elsewhere_equals_never_stopped(tmp_path: Path, whole: Path) -> None:
    """The first half on two actors, the second half in one process."""
    first = refork(tmp_path, "train", *SMALL, "--trainer.updates", "2", "--rollout.actors", "2")
    assert first.returncode == 0, first.stderr
    second = refork(tmp_path, "train", *SMALL, "--resume")
    assert second.returncode == 0, second.stderr
    run = run_folder(tmp_path)
    assert rows(run) == rows(whole)
    ours, theirs = (read(find(path)).state["trainer"]["network"] for path in (run, whole))
    assert all((ours[name].numpy() == theirs[name].numpy()).all() for name in theirs)
    for update in range(4):
        pair = [GameStore(path / "trajectories").read(update) for path in (run, whole)]
        assert all((a.actions == b.actions).all() and a.noise_seed == b.noise_seed for a, b in zip(*pair, strict=True))


def test_what_decides_how_games_are_packed_may_not_change_on_resuming() -> None:
    assert not any("env.options.batch".startswith(key) for key in FREE_ON_RESUME)


def test_judging_gives_fractions_by_cell_labels_and_regret(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "judged.json"
    assert main(["evaluate", str(whole), "--forks", "3", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    found = {(r["policy"], r["mode"]): r for r in json.loads(out.read_text())["results"]}
    assert {mode for policy, mode in found if policy == "trained"} == {"sampled", "greedy", "forks"}
    assert found["pass", "rule"]["overall"]["failure"] == "stagnation"
    coupled = found["coupled_greedy", "rule"]
    domains, couplings = ("charging", "vaccine"), ("regular", "irregular")
    assert set(coupled["by_cell"]) == {f"{d}/{c}/{n}" for d in domains for c in couplings for n in (4, 6)}
    low, middle, high = coupled["overall"]["fraction"]
    assert 0.5 < low <= middle + 1e-9 <= high + 2e-9 <= 1
    assert set(found["trained", "greedy"]["regret"]) == {"demand", "supply"}
    assert "regret of trained, greedy, demand: between" in shown
    assert np.isfinite(found["trained", "forks"]["overall"]["own"]).all()


def test_a_policy_is_judged_at_sizes_it_has_not_seen(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "judged.json"
    assert main(["evaluate", str(whole), "--no-baselines", "--sizes", "5", "7", "--out", str(out)]) == 0
    cells = json.loads(out.read_text())["results"][0]["by_cell"]
    assert {cell.rsplit("/", 1)[1] for cell in cells} == {"5", "7"}


def test_evaluations_are_repeatable(whole: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["evaluate", str(whole), "--no-baselines", "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env.options.sizes", "[1]"), "env.options.sizes.0: input should be greater than or equal to 3, got 1"),
        (("--env.id", "refork/Chain-v0"), "trainer.kind: pmd learns from games, but refork/Chain-v0 gives tasks"),
        (("--agent.kind", "edit_scorer"), "edit_scorer"),
        (("--trainer.warm_updates", "1", "--trainer.warm_heuristic", "greedyy"), "no heuristic 'greedyy'"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["train", *SMALL, "--runs", str(tmp_path), *arguments]) == 2
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]


def test_going_back_in_games_is_a_way_of_judging(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fork", str(whole), "charging-regular-n4-0", "--step", "1"]) == 2
    assert "is a run on games; `refork evaluate" in capsys.readouterr().err


def test_tasks_have_no_forks_in_evaluate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "chain_small", "--trainer.updates", "1", "--runs", str(tmp_path / "runs")]) == 0
    for flag in ("--forks", "--sizes"):
        assert main(["evaluate", str(run_folder(tmp_path)), flag, "4"]) == 2
        assert f"{flag}: is for games" in capsys.readouterr().err


def test_a_recorded_game_is_drawn_as_it_was_played(whole: Path, tmp_path: Path) -> None:
    stored = GameStore(whole / "trajectories").read(3)[5]
    found = film(whole, stored.task, "recorded", stored.episode, stored.attempt)
    assert (found.own == stored.own).all()
    built = (stored.actions < stored.pass_moves).sum(0)
    assert [found.site_level[-1].sum(), found.node_level[-1].sum()] == built.tolist()
    which = ("--episode", str(stored.episode), "--attempt", str(stored.attempt))
    assert run_app(draw_game.app, [str(whole), stored.task, *which, "--out", str(tmp_path / "a.png")]) == 0
    assert _is_picture(tmp_path / "a.png")


@pytest.mark.parametrize("by", ["trained", "one_hop_greedy"])
def test_a_game_is_drawn_as_it_would_be_played(by: str, whole: Path, tmp_path: Path) -> None:
    task = "vaccine-irregular-n6-200000"
    assert run_app(draw_game.app, [str(whole), task, "--by", by, "--out", str(tmp_path / "a.png")]) == 0
    assert _is_picture(tmp_path / "a.png")
    assert film(whole, task, by).fraction <= 1


def test_runs_and_evaluations_are_drawn(whole: Path, tmp_path: Path) -> None:
    judged = tmp_path / "judged.json"
    assert main(["evaluate", str(whole), "--out", str(judged)]) == 0
    for command, of in (("learning", whole), ("drift", whole), ("scale", judged)):
        out = tmp_path / f"{command}.png"
        assert run_app(draw_curves.app, [command, str(of), "--out", str(out)]) == 0
        assert _is_picture(out)
    study = tmp_path / "study.json"
    study.write_text('a line before\n{"fraction": {"masked": {"vaccine/regular/20": [0.1, 0.2, 0.3]}}}\n')
    assert draw_curves.read_fractions(study) == {"masked": {"vaccine/regular/20": [0.1, 0.2, 0.3]}}
    assert "coupled_greedy" in draw_curves.read_fractions(judged)


@pytest.mark.parametrize(
    ("app", "arguments", "message"),
    [
        (draw_game.app, ("RUN", "charging-regular-n4-0", "--by", "luck"), "--by luck: there are: recorded, trained"),
        (draw_game.app, ("RUN", "charging-regular-n4-999"), "no game of charging-regular-n4-999"),
        (draw_curves.app, ("learning", "nowhere"), "nowhere: not the folder of a run"),
        (draw_curves.app, ("scale", "nowhere.json"), "nowhere.json: is no evaluation of games, nor a study"),
        (draw_curves.app, ("drift",), "name at least one"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    app: App, arguments: tuple[str, ...], message: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(app, [str(whole) if word == "RUN" else word for word in arguments]) == 2
    assert message in capsys.readouterr().err


def _is_picture(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 10_000
