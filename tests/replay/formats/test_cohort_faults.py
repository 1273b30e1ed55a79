"""A wrong table ends with its file, row and column and what was expected; no corruption ends otherwise."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv
from pyarrow import parquet as pq
from refork.envs.forkable import BadInput

from tests.replay.formats.files import HEADER, ROWS, read, schema, write

COLUMNS = HEADER.split(",")


def changed(row: int, column: str, cell: str) -> list[str]:
    """The table with one other cell; rows count from 1."""
    rows = [line.split(",") for line in ROWS]
    rows[row - 1][COLUMNS.index(column)] = cell
    return [",".join(line) for line in rows]


FAULTS = [
    (3, "o:map", "inf", "found inf, expected a finite number"),
    (2, "o:map", "", "found nothing (an empty cell or NaN), expected a value (or missing.policy"),
    (2, "o:map", "1e300", "found 1e+300, expected a finite number"),
    (5, "o:lactate", "low", "found 'low', expected a number"),
    (5, "o:lactate", "1_0", "found '1_0', expected a number"),
    (5, "o:lactate", " 1", "found ' 1', expected a number"),
    (4, "a:iv", "5", "found 5, expected an action 0 ... 4 (5 are declared)"),
    (4, "a:vaso", "-1", "found -1, expected an action 0 ... 2 (3 are declared)"),
    (1, "a:iv", "0.5", "found 0.5, expected an action 0 ... 4 (5 are declared)"),
    (1, "a:iv", "", "found nothing (an empty cell or NaN), expected the number of an action"),
    (6, "r:reward", "nan", "found nothing (an empty cell or NaN), expected a reward (0 where there is none)"),
    (3, "step", "1", "found 1 after 1 in episode 's1', expected a rising value within an episode; sort the file"),
    (2, "step", "0.5", "found 0.5, expected a whole number; a time is declared as columns.time"),
    (5, "traj", "s1", "found 's1' again after other episodes, expected rows of an episode together"),
    (2, "patient", "p9", "found 'p9', expected 'p1' as in the other rows of this episode"),
    (2, "traj", "", "found nothing, expected an id"),
]


@pytest.mark.parametrize(("row", "column", "cell", "message"), FAULTS)
def test_a_wrong_cell_is_named(tmp_path: Path, row: int, column: str, cell: str, message: str) -> None:
    with pytest.raises(BadInput) as fault:
        read(write(tmp_path, changed(row, column, cell)))
    assert f"small.csv: row {row} (line {row + 1}), column '{column}': {message}" in str(fault.value)


def test_a_probability_may_not_be_a_logarithm(tmp_path: Path) -> None:
    rows = [f"{row},-0.7" for row in ROWS]
    declared = schema('behaviour_probability = "p"')
    with pytest.raises(
        BadInput, match=r"row 1 \(line 2\), column 'p': found -0.7.*declared as behaviour_log_probability"
    ):
        read(write(tmp_path, rows, f"{HEADER},p", declared))


def test_a_probability_that_a_log_would_hold_as_0_is_named(tmp_path: Path) -> None:
    rows = [f"{row},1e-60" for row in ROWS]
    with pytest.raises(
        BadInput, match=r"row 1 \(line 2\), column 'p': found 1e-60, expected a probability above 0, at most 1"
    ):
        read(write(tmp_path, rows, f"{HEADER},p", schema('behaviour_probability = "p"')))


def test_a_wrong_state_is_named_as_one(tmp_path: Path) -> None:
    declared = schema(missing="[observation]\nkind = 'states'\nsize = 80").replace('["o:*"]', '["o:map"]')
    with pytest.raises(BadInput, match=r"row 5 \(line 6\), column 'o:map': found 80, expected a state 0 ... 79"):
        read(write(tmp_path, declared=declared))


def test_an_action_that_is_not_allowed_is_named(tmp_path: Path) -> None:
    names = [f"ok{k}" for k in range(8)]
    rows = [f"{row},1,1,{int(k != 1)},1,1,1,1,1" for k, row in enumerate(ROWS)]
    with pytest.raises(
        BadInput, match=r"row 2 \(line 3\), column 'a:iv': found action 2, expected one that is allowed"
    ):
        read(write(tmp_path, rows, ",".join((HEADER, *names)), schema('allowed = ["ok*"]')))


def test_an_end_before_the_end_is_named(tmp_path: Path) -> None:
    rows = [f"{row},1" for row in ROWS]
    with pytest.raises(BadInput, match=r"row 1 \(line 2\), column 'dead': found 1, expected 0: the episode goes on"):
        read(write(tmp_path, rows, f"{HEADER},dead", schema('terminated = "dead"', end="column")))


def test_a_missing_end_is_named(tmp_path: Path) -> None:
    rows = [f"{row},0,0" for row in ROWS]
    declared = schema('terminated = "dead"\ntruncated = "cut"', end="column")
    with pytest.raises(BadInput, match=r"row 3 \(line 4\), column 'dead': found 0, expected 1 here or in 'cut'"):
        read(write(tmp_path, rows, f"{HEADER},dead,cut", declared))


def test_nothing_seen_yet_needs_a_declared_value(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"row 1 \(line 2\), column 'o:map'.*declare one in missing.first"):
        read(write(tmp_path, changed(1, "o:map", ""), declared=schema(missing='policy = "forward_fill"')))


def test_a_last_row_with_a_decision_is_named_when_it_should_have_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"row 3 \(line 4\), column 'a:iv': found 0, expected an empty cell"):
        read(write(tmp_path, declared=schema(episode='last_row = "observation"')))


def test_a_table_of_no_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"small\.csv: no decisions in 0 rows"):
        read(write(tmp_path, []))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text("")
    with pytest.raises(BadInput, match=r"small\.csv: cannot be read as csv"):
        read(path)


def test_a_semicolon_is_no_comma(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(path.read_text().replace(",", ";"))
    with pytest.raises(BadInput, match=r"small\.csv: its columns are separated by ';', expected commas"):
        read(path)


def test_rows_of_parquet_have_no_lines(tmp_path: Path) -> None:
    pq.write_table(csv.read_csv(write(tmp_path, changed(4, "a:iv", "5"))), tmp_path / "small.parquet")
    with pytest.raises(BadInput, match=r"small\.parquet: row 4, column 'a:iv': found 5"):
        read(tmp_path / "small.parquet")


def test_a_ragged_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"small\.csv: row 2 \(line 3\): cannot be read as csv"):
        read(write(tmp_path, [ROWS[0], f"{ROWS[1]},9", *ROWS[2:]]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('reward = "r', 'rewards = "r', r"columns\.rewards: unknown key; did you mean reward\?"),
        ("[missing]", "[misc]", r"misc: unknown key; there are: env, columns"),
        ('text = "points"', "", r"reward\.text: is missing"),
        ("counts = [5, 3]", "counts = 4", r"action\.counts: found 4, expected a list, e\.g\. \[4\]"),
        ('"4 h"', '"?"', r"still \?: time\.unit; fill in every one"),
        ('"4 h"', "hours", r'not TOML: .*: unit = hours; text stands in quotes, e\.g\. unit = "4 h"'),
        ('["o:*"]', '["o:mapp"]', r"column 'o:mapp' is missing .*; did you mean 'o:map'\? the file has: traj"),
        ("counts = [5, 3]", "", "counts: discrete actions need how many there are"),
        ("counts = [5, 3]", "counts = [5]", r"action.counts has 1 entries for 2 action columns \(a:iv, a:vaso\)"),
        ('unit = "4 h"', 'units = "4 h"', r"time\.units: unknown key; did you mean unit\?"),
        ('step = "step"', 'step = "hour"', r"column 'hour' is missing \(schema: columns.step\); the file has: traj"),
        ('end = "terminated"', 'end = "column"', "columns.terminated belong together"),
        ('"r:reward"', '"*:*a*"', "names .*; name one of them"),
        ("[missing]", '[missing]\npolicy = "mask"\nfirst = {"o:no" = 1}', "no observation column 'o:no'"),
        ("[missing]", '[missing]\nfirst = {"o:map" = 1}', "first says nothing when missing values are refused"),
        (
            "[missing]",
            "[observation]\nunits = {'o:mapp' = 'mmHg'}",
            r"units: no feature 'o:mapp'; did you mean 'o:map'\?",
        ),
        ("[missing]", "[observation]\nkind = 'states'\nsize = 90\nunits = {a = 'b'}", "units says nothing about"),
        ("[missing]", "[observation]\nsize = 2", "size says nothing about observations of kind vector"),
        ("counts = [5, 3]", "counts = [5, 3]\nagents = 2", "agents says nothing about discrete actions"),
        ("counts = [5, 3]", 'counts = [5, 3]\nnames = ["iv"]', "names: found 1, expected one per decision maker: 2"),
        ("[columns]", "[columns", "not TOML"),
        ('["o:*"]', '["*:*"]', "column 'a:iv' is an observation .* and declared as something else too"),
    ],
)
def test_a_wrong_schema_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read(write(tmp_path, declared=schema().replace(old, new)))


def test_truncated_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    pq.write_table(csv.read_csv(write(tmp_path)), path)
    assert len(read(path)) == 6
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadInput, match=r"small\.parquet: cannot be read as parquet"):
        read(path)


def test_an_empty_schema_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"small\.schema\.toml: declares nothing; where there is no schema"):
        read(write(tmp_path, declared="# nothing yet\n"))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_corruption_ends_without_a_place(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(("cell", "swap", "drop", "repeat", "cut")))
    rows, header = list(ROWS), HEADER
    row = data.draw(st.integers(1, len(ROWS)))
    column = data.draw(st.sampled_from(COLUMNS))
    match kind:
        case "cell":
            cell = data.draw(st.sampled_from(("", "inf", "x") if ":" in column else ("",)))
            rows = changed(row, column, cell)
            expected = rf"row {row} \(line {row + 1}\), column '{re.escape(column)}'"
        case "swap":
            rows[0], rows[1] = rows[1], rows[0]
            expected = r"row 2 \(line 3\), column 'step'"
        case "drop":
            keep = [k for k, name in enumerate(COLUMNS) if name != column]
            header = ",".join(COLUMNS[k] for k in keep)
            rows = [",".join(line.split(",")[k] for k in keep) for line in ROWS]
            expected = rf"column '{re.escape(column)}' is missing|no column|columns? \(a:"
            if column in ("o:map", "o:lactate"):  # o:* still names the other one
                return
        case "repeat":
            rows.insert(row, rows[row - 1])
            expected = rf"row {row + 1} \(line {row + 2}\), column 'step'"
        case "cut":
            text = rows[-1]
            rows[-1] = ",".join(text.split(",")[: data.draw(st.integers(1, 7))])
            expected = f"row {len(ROWS)}"
    with TemporaryDirectory() as folder, pytest.raises(BadInput) as fault:
        read(write(Path(folder), rows, header))
    assert re.search(expected, str(fault.value)), (kind, column, str(fault.value))
    assert "small." in str(fault.value)
