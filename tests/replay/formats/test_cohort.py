"""Cohort tables: what rows mean is what the schema says, and nothing else."""

from pathlib import Path

import numpy as np
import pytest
from refork.envs.forkable import BadInput

from tests.replay.formats.files import HEADER, ROWS, notes, read, schema, write


def test_rows_become_transitions(tmp_path: Path) -> None:
    log = read(write(tmp_path))
    assert log.starts.tolist() == [0, 3, 4, 6]
    assert log.actions.tolist() == [[0, 1], [2, 0], [0, 0], [4, 2], [1, 0], [0, 0]]
    assert log.rewards.tolist() == [0, 0, 1, -1, 0, 0.5]
    assert log.observations[:, 0].tolist() == [70, 65, 75, 75, 60, 60, 80, 81, 81]  # nothing is known after an end
    assert log.terminated.tolist() == [False, False, True, True, False, True]
    assert not log.truncated.any()
    assert log.dt.tolist() == [1, 2, 1, 1, 1, 1]
    assert log.patients.tolist() == [0, 1, 0]
    assert log.patient_names == ("p1", "p2")
    assert np.isnan(log.behaviour).all()
    assert log.spec.action.sizes == (5, 3)
    assert log.spec.action.names == ("a:iv", "a:vaso")
    assert log.spec.observation.names == ("o:map", "o:lactate")


def test_columns_can_be_one_decision_maker(tmp_path: Path) -> None:
    log = read(write(tmp_path, declared=schema(action="joint = true")))
    assert log.spec.action.sizes == (15,)
    assert log.actions[:, 0].tolist() == [1, 6, 0, 14, 3, 0]


def test_the_last_decision_of_a_cut_episode_has_nothing_after_it(tmp_path: Path) -> None:
    path = write(tmp_path, declared=schema(end="truncated"))
    log = read(path)
    assert log.starts.tolist() == [0, 2, 3]
    assert log.observations[:, 0].tolist() == [70, 65, 75, 80, 81]
    assert log.truncated.tolist() == [False, True, True]
    assert not log.terminated.any()
    assert notes(path) | {"dropped_decisions": 3, "dropped_rewards": 3, "dropped_episodes": 1} == notes(path)


def test_a_last_row_can_hold_only_what_followed(tmp_path: Path) -> None:
    rows = [*ROWS[:2], "s1,p1,3,75,1.0,,,", "s2,p2,0,60,4.0,4,2,-1", "s2,p2,4,61,4.1,,,"]
    log = read(write(tmp_path, rows, declared=schema(end="truncated", episode='last_row = "observation"')))
    assert log.starts.tolist() == [0, 2, 3]
    assert log.observations[:, 0].tolist() == [70, 65, 75, 60, 61]
    assert log.dt.tolist() == [1, 2, 4]


def test_columns_say_how_episodes_end_and_termination_wins(tmp_path: Path) -> None:
    flags = ("0,0", "0,0", "1,1", "0,1", "0,0", "1,0")
    declared = schema('terminated = "dead"\ntruncated = "cut"', end="column")
    rows = [f"{row},{flag}" for row, flag in zip(ROWS, flags, strict=True)]
    path = write(tmp_path, rows, f"{HEADER},dead,cut", declared)
    log = read(path)
    assert log.terminated.tolist() == [False, False, True, False, True]  # the one-step stay s2 is cut, so it is empty
    assert not log.truncated.any()
    assert notes(path)["both_ends"] == 1


def test_time_is_counted_in_units(tmp_path: Path) -> None:
    declared = schema().replace('step = "step"', 'time = "step"').replace('unit = "4 h"', 'unit = "4 h"\nper_unit = 4')
    rows = ["s1,p1,0.5,70,1.5,0,1,0", "s1,p1,6.5,65,2.5,2,0,1"]
    assert read(write(tmp_path, rows, declared=declared)).dt.tolist() == [1.5, 1]


def test_missing_values_are_filled_forward_within_an_episode_as_declared(tmp_path: Path) -> None:
    rows = list(ROWS)
    rows[1], rows[4] = "s1,p1,1,,2.5,2,0,0", "s3,p1,5,NaN,1.2,1,0,0"
    fill = 'policy = "forward_fill"\nfirst = {"o:map" = 77}'
    path = write(tmp_path, rows, declared=schema(missing=fill))
    assert read(path).observations[:, 0].tolist() == [70, 70, 75, 75, 60, 60, 77, 81, 81]
    assert notes(path)["missing"] == {"o:map": 2}


def test_a_mask_says_what_was_seen(tmp_path: Path) -> None:
    rows = list(ROWS)
    rows[1] = "s1,p1,1,,2.5,2,0,0"
    log = read(write(tmp_path, rows, declared=schema(missing='policy = "mask"')))
    assert log.spec.observation.names == ("o:map", "o:lactate", "m:map", "m:lactate")
    assert log.observations[:3].tolist() == [[70, 1.5, 1, 1], [70, 2.5, 0, 1], [75, 1, 1, 1]]


@pytest.mark.parametrize("named", ["prob", "pr*"])
@pytest.mark.parametrize(
    ("column", "values"), [("behaviour_probability", (0.5, "")), ("behaviour_log_probability", (np.log(0.5), ""))]
)
def test_behaviour_is_a_probability_and_unknown_stays_unknown(
    tmp_path: Path, column: str, values: tuple[object, object], named: str
) -> None:
    rows = [f"{row},{values[k % 2]}" for k, row in enumerate(ROWS)]
    log = read(write(tmp_path, rows, f"{HEADER},prob", schema(f'{column} = "{named}"')))
    assert log.behaviour[::2].tolist() == [0.5, 0.5, 0.5]
    assert np.isnan(log.behaviour[1::2]).all()


def test_doses_declared_continuous_stay_continuous_though_they_are_whole(tmp_path: Path) -> None:
    declared = schema().replace(
        'kind = "discrete"\ncounts = [5, 3]', 'kind = "continuous"\nlow = [0, 0]\nhigh = [4, 2]'
    )
    log = read(write(tmp_path, declared=declared))
    assert log.actions.dtype == np.float32
    assert log.actions.shape == (6, 1, 2)
    assert log.spec.action.sizes == (2,)


def test_a_dose_may_be_a_bound(tmp_path: Path) -> None:
    declared = schema().replace(
        'kind = "discrete"\ncounts = [5, 3]', 'kind = "continuous"\nlow = [0.1, 0]\nhigh = [4, 0.7]'
    )
    log = read(write(tmp_path, ["s1,p1,0,70,1.5,0.1,0.7,0", "s1,p1,1,65,2.5,2,0,1"], declared=declared))
    assert log.actions[0].tolist() == [[np.float32(0.1), np.float32(0.7)]]


def test_actions_that_do_not_occur_are_still_counted(tmp_path: Path) -> None:
    rows = [row.replace(",4,2,-1", ",3,2,-1") for row in ROWS]
    assert read(write(tmp_path, rows)).spec.action.sizes == (5, 3)


def test_what_is_allowed_is_kept(tmp_path: Path) -> None:
    names = [f"ok{k}" for k in range(8)]
    rows = [f"{row},1,1,1,1,1,1,1,{int(k != 4)}" for k, row in enumerate(ROWS)]
    log = read(write(tmp_path, rows, ",".join((HEADER, *names)), schema('allowed = ["ok*"]')))
    assert log.allowed is not None
    assert log.allowed.shape == (9, 2, 5)
    assert log.allowed[0].tolist() == [[True] * 5, [True, True, True, False, False]]
    assert log.allowed[6].tolist() == [[True] * 5, [True, True, False, False, False]]


def test_the_published_layout_has_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "sepsis.csv"
    lines = ["traj,step,m:charttime,m:icustayid,o:gender,o:SpO2,a:action,r:reward"]
    lines += ["0,0,1,s7,1,97,3,0", "0,1,2,s7,1,95,24,1", "1,0,5,s9,0,91,0,-1"]
    path.write_text("\n".join(lines) + "\n")
    log = read(path, Path("mimic_sepsis"))
    assert log.spec.action.sizes == (25,)
    assert log.spec.observation.names == ("o:gender", "o:SpO2")
    assert log.patient_names == ("s7", "s9")
    assert log.rewards.tolist() == [0, 1, -1]
    assert log.terminated.tolist() == [False, True, True]


def test_a_table_may_be_read_in_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"s{k // 7},p{k // 14},{k % 7},{k % 50},{k % 3},{k % 5},{k % 3},{k % 2}" for k in range(700)]
    whole = read(write(tmp_path, rows))
    monkeypatch.setattr("refork.replay.formats.cohort.BLOCK_BYTES", 300)
    parts = read(write(tmp_path, rows))
    for name in ("observations", "actions", "rewards", "starts", "patients", "dt", "terminated"):
        assert np.array_equal(getattr(parts, name), getattr(whole, name))
    rows[649] = rows[649].replace(f",{649 % 50},", ",x,", 1)
    with pytest.raises(BadInput, match=r"row 650 \(line 651\), column 'o:map': found 'x'"):
        read(write(tmp_path, rows))
