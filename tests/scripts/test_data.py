"""`refork data` as a person runs it: cards, faults in one line, conversions, a job on a file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import get_args

import h5py
import pytest
from refork.replay.formats.kinds import KINDS, NATIVE
from refork.replay.transitions import load, save
from refork.scripts.cli import main
from refork.scripts.data import Format

from tests.replay.formats import files
from tests.scripts.commands import refork, run_folder
from tests.trainers.logs import log_for

JOB = """\
name = "own"
[env]
id = "refork/Logs-v0"
tasks = "{log}"
[agent]
kind = "q_networks"
[agent.options]
hidden = [8]
[trainer]
kind = "cql"
updates = 1
steps_per_update = 2
gamma = 1.0
seeds = 1
[tracking]
wandb = "off"
"""


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cohort")
    assert refork(folder, "data", "cohort", "c.csv", "--patients", "60", "--seed", "1").returncode == 0
    return folder


def test_a_cohort_is_checked_and_its_card_written(cohort: Path) -> None:
    done = refork(cohort, "data", "check", "c.csv", "--out", "card.json")
    assert done.returncode == 0, done.stderr
    card = json.loads((cohort / "card.json").read_text())
    assert (card["patients"], card["episodes"], card["behaviour_known"]) == (60, 60, 1)
    assert card["missing"]["o:BUN"] > 0
    assert "60 terminated, 0 truncated" in done.stdout
    assert "42 train, 9 validation, 9 held out" in done.stdout
    assert "warning: 9 of 60 episodes are held out: no estimate by weights" in done.stdout
    assert card["content"][:16] in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if not line.startswith("warning")) <= 120


def test_a_heart_rate_of_9000_is_seen_first(cohort: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, *lines = [line.split(",") for line in (cohort / "c.csv").read_text().splitlines()]
    lines[6][header.index('"o:HR"')] = "9000"
    (tmp_path / "c.csv").write_text("\n".join(",".join(row) for row in (header, *lines)))
    shutil.copy(cohort / "c.schema.toml", tmp_path)
    assert main(["data", "check", str(tmp_path / "c.csv"), "--out", str(tmp_path / "card.json")]) == 0
    said = capsys.readouterr().out
    assert "Features: 16 of 48, farthest extremes first" in said
    rows = [line.split() for line in said.splitlines() if line.startswith("│ o:")]
    assert len(rows) == 16
    assert (rows[0][1], rows[0][7]) == ("o:HR", "9000")
    assert len(json.loads((tmp_path / "card.json").read_text())["features"]) == 48


@pytest.mark.parametrize(("kind", "name"), [("native", "n"), ("parquet", "n.parquet"), ("d4rl", "n.hdf5")])
def test_a_cohort_is_converted(
    cohort: Path, kind: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out, card = str(cohort / "c.csv"), tmp_path / name, tmp_path / "card.json"
    assert main(["data", "convert", source, str(out), "--to", kind]) == 0
    assert main(["data", "check", str(out), "--out", str(card)]) == 0
    assert json.loads(card.read_text())["episodes"] == 60
    capsys.readouterr()
    assert main(["data", "convert", source, str(out), "--to", kind]) == 2
    assert capsys.readouterr().err.startswith(f"refork: {out}: is there already")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("to", get_args(Format))
def test_a_relative_name_is_a_name(cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    monkeypatch.chdir(tmp_path)
    name = {"csv": "n.csv", "parquet": "n.parquet", "rllib": "n.parquet", "d4rl": "n.hdf5"}.get(to, "n")
    assert main(["data", "convert", str(cohort / "c.csv"), f"new/{name}", "--to", to]) == 0
    assert main(["data", "check", f"new/{name}"]) == 0


def test_every_format_can_be_named() -> None:
    assert set(get_args(Format)) == {NATIVE, *KINDS}


def test_a_log_is_collected(tmp_path: Path) -> None:
    options = ["--behaviour", "random", "--episodes", "30", "--seed", "2", "--options.channels", "factored"]
    assert main(["data", "collect", "refork/SyntheticCohort-v0", str(tmp_path / "log"), *options]) == 0
    log = load(tmp_path / "log")
    assert log.episodes == 30
    assert log.spec.action.sizes == (5, 5)
    assert log.behaviour.tolist() == pytest.approx([0.04] * len(log))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "none.csv"), "none.csv: there is no such file"),
        (("check",), "name at least one file"),
        (("check", "none.csv", "--out", "."), ".: is a folder; choose another --out"),
        (("collect", "refork/None-v0", "log"), "no simulator 'refork/None-v0'; there are: refork/"),
        (("collect", "refork/SyntheticCohort-v0", "log", "--options.x", "1"), "options of refork/SyntheticCohort-v0"),
        (("collect", "refork/SyntheticCohort-v0", "log", "--behaviour", "x"), "no behaviour 'x'"),
        (("cohort", "c.csv", "--patients", "0"), "Must be >= 1"),
        (("cohort", "c.txt"), "c.txt: the name of a table ends in .csv or .parquet"),
        (("cohort", "/proc/none/c.csv"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.out == ""
    assert not list(tmp_path.iterdir())


def test_a_fault_in_a_file_is_one_line(tmp_path: Path) -> None:
    files.write(tmp_path, [*files.ROWS[:3], "s2,p2,0,60,4.0,4,3,-1"])
    done = refork(tmp_path, "data", "check", "small.csv")
    expected = (
        "refork: small.csv: row 4 (line 5), column 'a:vaso': found 3, expected an action 0 ... 2 (3 are declared)\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_a_missing_schema_shows_one_for_this_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(tmp_path)
    (tmp_path / "small.schema.toml").rename(tmp_path / "mine.toml")
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", "small.csv"]) == 2
    assert 'actions = ["a:iv", "a:vaso"]' in capsys.readouterr().err
    assert main(["data", "check", "small.csv", "--schema", "mine.toml"]) == 0


def test_a_converted_log_keeps_what_was_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [files.ROWS[0], files.ROWS[1].replace("65", ""), *files.ROWS[2:]]
    path = files.write(tmp_path, rows, declared=files.schema(missing='policy = "mask"'))
    assert main(["data", "convert", str(path), str(tmp_path / "log")]) == 0
    assert main(["data", "check", str(tmp_path / "log")]) == 0
    said = capsys.readouterr().out
    assert "1 values in 1 columns (mask): o:map 1" in said
    assert "16.7%" in said
    assert "m:map" not in said


def test_units_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    units = "[observation.units]\n'o:m*' = 'mmHg'\n[time]"
    path = files.write(tmp_path, declared=files.schema().replace("[time]", units))
    assert main(["data", "convert", str(path), str(tmp_path / "log")]) == 0
    assert main(["data", "check", str(tmp_path / "log")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("│ o:")]
    assert rows[0] == ["│", "o:map", "│", "mmHg", "│", "60", "│", "75", "│", "81", "│", "0.0%", "│"]
    assert rows[1][3] == "│"


def test_a_job_on_a_broken_log_folder_is_refused(tmp_path: Path) -> None:
    log = log_for("discrete")
    log.observations[7, 1] = float("nan")
    save(log, tmp_path / "log")
    (tmp_path / "job.toml").write_text(JOB.format(log="log"))
    done = refork(tmp_path, "train", "job.toml")
    assert done.returncode == 2
    assert "log: row 7, column 'observations': found nothing" in done.stderr


@pytest.mark.parametrize(("to", "name"), [("minari", "m"), ("csv", "m.csv")])
def test_what_could_not_be_written_whole_is_removed(
    cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, name: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refork.replay.formats.minari._buffer", full)
    monkeypatch.setattr("refork.replay.formats.cohort_writer.schema_text", full)
    assert main(["data", "convert", str(cohort / "c.csv"), str(tmp_path / name), "--to", to]) != 0
    assert not list(tmp_path.iterdir())


def test_a_declared_schema_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["data", "convert", "small.csv", "small.parquet", "--to", "parquet"]) == 2
    expected = "small.schema.toml: is there already and describes other columns than small.parquet would have"
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "small.parquet").exists()
    assert (tmp_path / "small.schema.toml").read_text() == files.schema()
    assert main(["data", "check", "small.csv"]) == 0


def test_a_schema_that_fits_both_tables_is_shared(cohort: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "n.csv", tmp_path / "n.parquet"
    assert main(["data", "convert", str(cohort / "c.csv"), str(first), "--to", "csv"]) == 0
    said = (tmp_path / "n.schema.toml").read_text()
    (tmp_path / "n.schema.toml").write_text(f"# mine\n{said}")
    assert main(["data", "convert", str(first), str(second), "--to", "parquet"]) == 0
    assert (tmp_path / "n.schema.toml").read_text() == f"# mine\n{said}"
    assert main(["data", "check", str(second)]) == 0


def test_a_cohort_leaves_another_schema_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.schema.toml").write_text(files.schema())
    assert main(["data", "cohort", str(tmp_path / "c.csv"), "--patients", "3"]) == 2
    assert "c.schema.toml: is there already and describes other columns" in capsys.readouterr().err
    assert (tmp_path / "c.schema.toml").read_text() == files.schema()


def test_the_schema_of_a_table_is_not_that_of_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["data", "convert", "small.csv", "small.hdf5", "--to", "d4rl"]) == 0
    assert main(["data", "check", "small.hdf5"]) == 0
    assert main(["data", "check", "small.hdf5", "--schema", "small.schema.toml"]) == 2
    assert "small.hdf5: the schema given is that of a table" in capsys.readouterr().err
    with h5py.File("small.hdf5", "a") as file:
        del file.attrs["refork"]
    assert main(["data", "check", "small.hdf5"]) == 2
    assert "(small.schema.toml is that of a table); give --schema FILE" in capsys.readouterr().err


def test_a_patient_in_two_files_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, rows in (("train", files.ROWS[:4]), ("test", files.ROWS[4:])):
        (tmp_path / part).mkdir()
        files.write(tmp_path / part, rows)
    monkeypatch.chdir(tmp_path)
    assert main(["data", "check", "train/small.csv", "test/small.csv"]) == 2
    assert "test/small.csv: 1 patients are also in train/small.csv (e.g. 'p1')" in capsys.readouterr().err


def test_a_job_reads_a_file_and_keeps_its_conversion(tmp_path: Path) -> None:
    rows = [f"s{k},p{k},{step},{70 + k},{1.5 + step},{k % 5},{step},{k % 3}" for k in range(20) for step in (0, 1)]
    files.write(tmp_path, rows)
    (tmp_path / "job.toml").write_text(JOB.format(log="small.csv"))
    done = refork(tmp_path, "train", "job.toml")
    assert done.returncode == 0, done.stderr
    assert (run_folder(tmp_path) / "metrics.jsonl").exists()
    (kept,) = (tmp_path / ".refork" / "logs").iterdir()
    assert load(kept).episodes == 20


def test_training_on_one_action_is_refused(tmp_path: Path) -> None:
    files.write(tmp_path, [f"s{k},p{k},{step},70,1,2,1,{k}" for k in range(20) for step in (0, 1)])
    (tmp_path / "job.toml").write_text(JOB.format(log="small.csv"))
    done = refork(tmp_path, "train", "job.toml")
    assert done.returncode == 2
    assert done.stderr.startswith("refork: the training part of the log: all 28 logged actions are equal ([2, 1])")
