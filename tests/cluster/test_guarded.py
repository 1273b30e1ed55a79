"""A guarded policy out of a run's folder, and out of the one file that is carried to where decisions are made."""

import json
from pathlib import Path

import numpy as np
import pytest
from refork.agents.density import fit_density
from refork.agents.guard_checks import Rule
from refork.cluster.guarded import NAME, VetoFile, export_guarded, load_guarded
from refork.cluster.run_folder import create
from refork.cluster.training import Silent, prepare, train
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, Limit, LogSpec, ObservationSpec
from refork.replay.transitions import save
from refork.trainers.config import JobConfig

from tests.trainers.ogsrl.made import one_step


def _run(folder: Path, kind: str, tmp_path: Path) -> Path:
    log = tmp_path / "log"
    save(one_step(folder.name, 200), log)
    job = JobConfig.model_validate(
        {
            "name": kind,
            "runs": folder / "runs",
            "env": {"id": "refork/Logs-v0", "tasks": log},
            "agent": {"kind": "q_networks", "options": {"hidden": [16]}},
            "trainer": {"kind": kind, "seeds": 2, "updates": 1, "steps_per_update": 5, "batch": 32},
            "tracking": {"wandb": "off"},
        }
    )
    run = create(job)
    train(prepare(job), run, Silent())
    return run.path


@pytest.mark.parametrize(("kind", "observed"), [("ogsrl", "states"), ("ogsrl", "vector"), ("cql", "vector")])
def test_a_run_gives_the_same_guarded_policy_as_its_exported_file(kind: str, observed: str, tmp_path: Path) -> None:
    folder = tmp_path / observed
    folder.mkdir()
    run = _run(folder, kind, tmp_path)
    path = export_guarded(run)
    assert path == run / NAME
    rebuilt, loaded = (load_guarded(where, 1) for where in (run, path))
    situations = range(2) if observed == "states" else np.array([[0.0, 96.0], [1.0, 96.0], [500.0, 96.0]])
    for situation in situations:
        assert rebuilt.act([situation]) == loaded.act([situation])
    if observed == "vector":
        assert "unlike those the policy was trained on" in loaded.vetoes[-1].reason


def test_vetoes_are_appended_to_a_file_and_rules_hold(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    folder.mkdir()
    run = _run(folder, "ogsrl", tmp_path)
    rule = Rule(Limit("o:SpO2", "above", 90.0), forbidden=(0, 1, 2), because="none of them")
    guarded = load_guarded(run, rules=[rule], vetoes=tmp_path / "vetoes.jsonl")
    for _ in range(2):
        guarded.act([0], logged=1, about={"patient": "p17", "time": 8.0})
    guarded.act([0], logged=1)
    lines = [json.loads(line) for line in (tmp_path / "vetoes.jsonl").read_text().splitlines()]
    assert [line["decision"] for line in lines] == [0, 1, 2]
    assert [line["about"] for line in lines] == [{"patient": "p17", "time": 8.0}] * 2 + [{}]
    assert all(line["action"] == 1 and "none of them" in line["reason"] for line in lines)


def test_joint_doses_are_named_by_their_levels(tmp_path: Path) -> None:
    """One state; the policy gives dose 22 of 25, the log has dose 7 alone."""
    action = ActionSpec("discrete", (25,), ("a:iv x a:vaso",))
    spec = LogSpec("refork/SyntheticCohort-v0", ObservationSpec("states", 1), action, "survival")
    density = fit_density(spec, np.zeros(50, np.int64), np.full((50, 1), 7), 5.0, 10, 0).arrays()
    weights = {f"weights/guardian.{name}": array for name, array in density.items()}
    policy = np.eye(25, dtype=np.float32)[None, None, 22]
    head = json.dumps({"spec": spec.to_json(), "seeds": 1, "first": None})
    np.savez(tmp_path / NAME, head=np.array(head), **{"weights/logits.table.rows": policy}, **weights)  # type: ignore[arg-type]
    decision = load_guarded(tmp_path / NAME).act([0])
    assert (decision.recommended, decision.action) == (22, 7)
    assert decision.reason.startswith("iv 4, vaso 2 vetoed: ")
    assert decision.reason.endswith("clinicians' usual iv 1, vaso 2 instead")


@pytest.mark.parametrize("content", [b"no", b"PK\x03\x04 cut off", b"", b"\x93NUMPY"])
def test_what_is_no_exported_policy_is_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    np.save(tmp_path / "x.npy", np.zeros(3))
    for name in ("x.npz", "x.npy"):
        with pytest.raises(BadInput, match="not an exported guarded policy"):
            load_guarded(tmp_path / name)


def test_vetoes_need_a_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        VetoFile(tmp_path / "nowhere" / "vetoes.jsonl")


def test_a_table_that_was_filled_forward_is_filled_when_deciding(tmp_path: Path) -> None:
    """The whole path of a user: a row of the table as it stands there, values missing."""
    rows = ["traj,step,SpO2,HR,dose,reward"]
    for patient in range(40):
        for t, rate in enumerate((80, "", "", "")):
            rows.append(f"{patient},{t},{90 + (patient + t) % 9},{rate},{(patient + t) % 2},{patient % 2}")
    (tmp_path / "mine.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "mine.schema.toml").write_text(
        """
        [columns]
        episode = "traj"
        patient = "traj"
        step = "step"
        observations = ["SpO2", "HR"]
        actions = ["dose"]
        reward = "reward"
        [action]
        kind = "discrete"
        counts = [2]
        [episode]
        end = "terminated"
        [time]
        unit = "hour"
        [reward]
        text = "none"
        [missing]
        policy = "forward_fill"
        first = { HR = 75.0 }
        """
    )
    job = JobConfig.model_validate(
        {
            "runs": tmp_path / "runs",
            "env": {"id": "refork/Logs-v0", "tasks": tmp_path / "mine.csv"},
            "agent": {"options": {"hidden": [16]}},
            "trainer": {"kind": "cql", "updates": 1, "steps_per_update": 5, "batch": 32},
            "tracking": {"wandb": "off"},
        }
    )
    run = create(job)
    train(prepare(job), run, Silent())
    exported = export_guarded(run.path)
    for where in (run.path, exported):
        guarded = load_guarded(where)
        assert guarded.act([{"SpO2": 94}]) == guarded.act([[94.0, 75.0]])
        assert guarded.act([{"SpO2": 94, "HR": 81}, {"SpO2": 92}]) == guarded.act([[92.0, 81.0]])
