"""`refork sync` as a person runs it, against a server on this machine that takes what W&B's own client sends."""

import json
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
from refork.cluster.wandb_files import history, segments

from tests.scripts.commands import SMALL, refork, run_folder
from tests.scripts.wandb_server import wandb_server

OFFLINE = ("--tracking.wandb", "offline", "--evaluate.every", "0")
KEY = "a" * 40


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was recorded offline and gone on with, so in two segments."""
    folder = tmp_path_factory.mktemp("sync")
    (folder / "tmp").mkdir()
    for arguments in (SMALL, (SMALL[0], "--resume", "--trainer.updates", "8")):
        done = refork(folder, "train", *arguments, *OFFLINE, TMPDIR=str(folder / "tmp"))
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    shutil.copytree(recorded / "runs", tmp_path / "runs")
    return tmp_path


def test_a_run_recorded_offline_writes_nothing_outside_its_folder(recorded: Path) -> None:
    """But what matplotlib (fonts) and torch keep for all programs."""
    found = {
        p.relative_to(recorded)
        for pattern in ("*", ".c*/*", "tmp/*")
        for p in recorded.glob(pattern)
        if "torch" not in p.name
    }
    shared = {".cache", ".cache/matplotlib", ".config", ".config/matplotlib", ".refork"}
    assert {str(p) for p in found} - shared == {"runs", "tmp"}


def test_the_fork_tree_is_a_picture_in_the_last_row(recorded: Path) -> None:
    run = run_folder(recorded)
    last = history(segments(run)[-1])[-1]
    picture = segments(run)[-1].parent / "files" / last["report/fork_tree/path"]
    assert (last["_step"], picture.read_bytes()) == (8, (run / "fork_tree.png").read_bytes())
    assert last["report/fork_tree_table/nrows"] > 0


def test_all_segments_are_sent_in_order_to_one_run_and_only_once(folder: Path) -> None:
    run = run_folder(folder)
    with wandb_server() as (url, got):
        done = refork(folder, "sync", str(run), WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
        assert done.returncode == 0, done.stderr
        (sent,) = done.stdout.splitlines()
        assert sent.startswith(f"{run}: sent 2 segments, 8 rows, 2 models to {url}/")
        again = refork(folder, "sync", str(run), WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
        assert (again.returncode, again.stdout) == (0, f"{run}: nothing to send\n")
    ((run_id, rows),) = ((key, rows) for key, rows in got.rows.items() if rows)
    assert sent.endswith(f"/runs/{run_id}")
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(r["_step"], r["update"], r["total/steps"]) for r in rows] == [
        (m["step"], m["step"], m["total/steps"]) for m in metrics
    ]
    models = [json.loads(a["metadata"]) for a in got.artifacts if a["artifactTypeName"] == "model"]
    assert [metadata["step"] for metadata in models] == [6, 8]
    first = next(told for told in got.runs if told["groupName"])
    assert (first["groupName"], first["jobType"], first["tags"]) == ("chain_small", "train", ["seed-0", "crr"])
    config = json.loads(next(told["config"] for told in got.runs if told["config"]))
    assert config["trainer"]["value"]["kind"] == "crr"
    assert config["versions"]["value"] == json.loads((run / "versions.json").read_text())["versions"]
    assert {p.name for p in folder.iterdir()} == {"runs"}


def test_a_run_gone_on_with_online_sends_every_row_once(tmp_path: Path) -> None:
    job = ("--tracking.wandb", "online", "--tracking.artifacts", "none")
    with wandb_server() as (url, got):
        play = partial(refork, tmp_path, "train", SMALL[0], *job, WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
        first = play("--trainer.updates", "3")
        again = play("--trainer.updates", "5", "--resume")
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert "will be ignored" not in again.stderr
    (rows,) = (rows for rows in got.rows.values() if rows)
    assert [row["_step"] for row in rows] == [1, 2, 3, 4, 5]


def test_a_torn_segment_does_not_keep_the_next_ones_back(folder: Path) -> None:
    run = run_folder(folder)
    first = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))[0]
    first.write_bytes(first.read_bytes()[:-20])  # in its last record, as when the machine dies
    with wandb_server() as (url, got):
        done = refork(folder, "sync", str(run), WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
    assert done.returncode == 0, done.stderr
    (rows,) = (rows for rows in got.rows.values() if rows)
    assert [row["_step"] for row in rows][-2:] == [7, 8]


def test_no_key_is_said_in_one_line(folder: Path) -> None:
    done = refork(folder, "sync", str(run_folder(folder)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "refork: no W&B key: set WANDB_API_KEY or run `wandb login`, then sync again\n"


def test_a_refused_connection_is_said_in_one_line_and_soon(folder: Path) -> None:
    begun = time.monotonic()
    done = refork(folder, "sync", str(run_folder(folder)), WANDB_API_KEY=KEY, WANDB_BASE_URL="http://127.0.0.1:9")
    assert time.monotonic() - begun < 20
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("refork: http://127.0.0.1:9: W&B cannot be reached (")
    assert len(done.stderr.splitlines()) == 1


def test_a_wrong_key_is_said_in_the_servers_words_and_can_be_tried_again(folder: Path) -> None:
    run = run_folder(folder)
    with wandb_server(status=401) as (url, _):
        done = refork(folder, "sync", str(run), WANDB_API_KEY=KEY, WANDB_BASE_URL=url)
    assert done.returncode == 1
    assert "was not sent:" in done.stderr
    assert "user is not logged in" in done.stderr
    assert list(run.rglob("*.synced")) == []


def test_what_is_no_run_is_bad_input(tmp_path: Path) -> None:
    assert refork(tmp_path, "sync").returncode == 2
    done = refork(tmp_path, "sync", "nowhere")
    assert (done.returncode, done.stderr) == (
        2,
        "refork: nowhere: not the folder of a run: job.toml cannot be read\n",
    )
