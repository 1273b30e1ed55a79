"""The draft of a schema: the table's own columns, guesses marked, decisions left open."""

import re
import tomllib
from pathlib import Path

import pytest
from pyarrow import csv
from pyarrow import parquet as pq
from pydantic import BaseModel
from refork.envs.forkable import BadInput
from refork.replay.formats.cohort import first_rows
from refork.replay.formats.draft import GUESSED, FirstRows, draft
from refork.replay.formats.schema import Action, Columns, Episode, Missing, Observation, Reward, Schema, Time

from tests.replay.formats.files import HEADER, read, write

OWN = ["pid", "hour", "hr", "map", "iv", "vaso", "reward", "died"]
FIRST = FirstRows(500, {"pid": 60, "iv": 4, "vaso": 2, "died": 1})


def values(text: str) -> dict[str, object]:
    return {f"{name}.{key}": v for name, section in tomllib.loads(text).items() for key, v in section.items()}


def test_published_names_are_guessed_and_marked() -> None:
    text = draft(Path("mine.csv"), HEADER.split(","), FirstRows(6, {"a:iv": 4, "a:vaso": 2}))
    assert values(text) == {
        "columns.episode": "traj",
        "columns.patient": "patient",
        "columns.step": "step",
        "columns.observations": ["o:*"],
        "columns.actions": ["a:iv", "a:vaso"],
        "columns.reward": "r:reward",
        "action.kind": "?",
        "action.counts": ["?", "?"],
        "episode.end": "?",
        "time.unit": "?",
        "reward.text": "?",
    }
    assert text.count(GUESSED) == 6
    assert "# whole numbers in the first 6 rows: a:iv 0 ... 4, a:vaso 0 ... 2" in text


def test_columns_of_other_names_are_listed_and_left_open() -> None:
    text = draft(Path("mine.csv"), OWN, FIRST)
    assert "# Columns: pid, hour, hr, map, iv, vaso, reward, died" in text
    found = values(text)
    guessed = {"columns.time": "hour", "columns.reward": "reward"}
    assert {key: value for key, value in found.items() if value not in ("?", ["?"])} == guessed
    assert {"columns.episode", "columns.patient", "columns.observations", "columns.actions"} <= found.keys()
    assert '# terminated = "died"' in text
    assert "# whole numbers in the first 500 rows: pid 0 ... 60, iv 0 ... 4, vaso 0 ... 2\n" in text


@pytest.mark.parametrize("section", [Columns, Observation, Action, Episode, Time, Reward, Missing])
def test_every_key_is_in_the_draft(section: type[BaseModel]) -> None:
    text = draft(Path("mine.csv"), OWN, FIRST).replace("time = ", "step = time = ")  # one of the two
    keys = set(section.model_fields) - ({"names"} if section is Observation else set())  # columns have names
    assert [key for key in keys if not re.search(rf"\b{key}\b( =|]|$)", text, re.MULTILINE)] == []


def test_every_example_can_be_used() -> None:
    """Without their #, the optional lines of a section are TOML that the schema takes."""
    text = draft(Path("mine.csv"), HEADER.split(","), FirstRows(0, {}))
    lines = [line.removeprefix("# ") for line in text.splitlines()[2:]]
    data = tomllib.loads("\n".join(line for line in lines if not line.startswith("counts")))
    data["action"] = {"kind": "continuous", "low": data["action"]["low"], "high": data["action"]["high"]}
    assert data.pop("observation") == {"kind": "states", "size": 750, "units": {"o:lactate": "mmol/L"}}
    data["episode"]["end"] = "column"
    assert data["missing"] == {"policy": "forward_fill", "first": {"o:lactate": 2.0}}
    assert Schema.model_validate(data).missing.first == {"o:lactate": 2.0}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_whole_numbers_are_found_in_the_first_rows(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path)
    if kind == "parquet":
        pq.write_table(csv.read_csv(path), tmp_path / "small.parquet")
    expected = FirstRows(6, {"step": 6, "o:map": 81, "a:iv": 4, "a:vaso": 2})
    assert first_rows(tmp_path / f"small.{kind}") == expected


def test_a_draft_is_refused_until_it_is_filled_in(tmp_path: Path) -> None:
    path = write(tmp_path)
    declared = tmp_path / "small.schema.toml"
    declared.unlink()
    with pytest.raises(BadInput, match=r"write .*small\.schema\.toml \(or give --schema FILE\)") as fault:
        read(path)
    declared.write_text(str(fault.value).split("\n\n", 1)[1])
    with pytest.raises(BadInput, match=r"still \?: action.kind, action.counts, episode.end, time.unit, reward.text"):
        read(path)
