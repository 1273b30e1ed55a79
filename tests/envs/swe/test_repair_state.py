"""Workspaces by their edits: texts, ids that a sandbox would report, states that go to JSON and back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from refork.envs.swe.repair_state import Applied, Known, RepairState, Workspaces
from refork.envs.swe.sandbox.base import Entry, digest_state
from refork.envs.swe.source_edit import Edit

SOURCE = "a = 1\nb = 2\nc = 3\n"
UP = Edit("m.py", 1, 4, 1, 5, "10")
DOWN = Edit("m.py", 3, 4, 3, 5, "30")
LONGER = Edit("m.py", 1, 0, 1, 0, "z = 0\n")


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    (tmp_path / "m.py").write_text(SOURCE)
    (tmp_path / "run.py").write_text("x = 1\n")
    (tmp_path / "run.py").chmod(0o755)
    (tmp_path / "old.py").write_text("print 'two'\n")
    (tmp_path / "latin.py").write_bytes(b"# \xff\n")
    return Workspaces(tmp_path, "base", ("m.py", "run.py", "old.py", "latin.py"))


def file(text: str, mode: int = 0o644) -> Entry:
    return Entry("file", mode, hashlib.sha256(text.encode()).hexdigest())


def test_only_readable_python_is_offered(workspaces: Workspaces) -> None:
    assert sorted(workspaces.start.modules) == ["m.py", "run.py"]
    assert len(workspaces.start.modules) == 2
    with pytest.raises(KeyError, match=r"other\.py"):
        workspaces.start.modules["other.py"]


def test_ids_cover_what_differs_and_its_mode(workspaces: Workspaces) -> None:
    assert workspaces.start.id == digest_state("base", {})
    both = workspaces.at((Applied(UP, 0), Applied(Edit("run.py", 1, 4, 1, 5, "2"), 0)))
    changed = {"/testbed/m.py": file(SOURCE.replace("1", "10")), "/testbed/run.py": file("x = 2\n", 0o755)}
    assert both.id == digest_state("base", changed)
    assert both.files == {"/testbed/m.py": SOURCE.replace("1", "10").encode(), "/testbed/run.py": b"x = 2\n"}


def test_edits_are_placed_by_the_last_tested_text(workspaces: Workspaces) -> None:
    untested = workspaces.at((Applied(LONGER, 0), Applied(DOWN, 0)))
    assert untested.modules["m.py"].text == "z = 0\na = 1\nb = 2\nc = 30\n"
    tested = workspaces.at((Applied(LONGER, 0), Applied(DOWN, 1)))
    assert tested.modules["m.py"].text == "z = 0\na = 1\nb = 30\nc = 3\n"


def test_order_does_not_matter_to_a_workspace_and_going_back_is_the_base(workspaces: Workspaces) -> None:
    one, two = Applied(UP, 0), Applied(DOWN, 0)
    assert workspaces.at((one, two)).id == workspaces.at((two, one)).id
    back = Applied(Edit("m.py", 1, 4, 1, 6, "1"), 1)
    assert workspaces.at((one, back)).id == workspaces.start.id
    assert workspaces.children((one,), [DOWN, back.edit]) == [workspaces.at((one, two)).id, workspaces.start.id]


def test_a_state_goes_to_json_and_back(workspaces: Workspaces) -> None:
    state = RepairState((Applied(UP, 0),), {"w": Known((0, 2), None), "v": Known(None, 1)}, 5, "submitted")
    again = RepairState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state
    assert workspaces.state_id("t", again) == workspaces.state_id("t", state)


def test_everything_that_matters_is_in_the_state_id(workspaces: Workspaces) -> None:
    state = RepairState((Applied(UP, 0),), {"w": Known((0,))}, 5)
    others = [
        RepairState((Applied(DOWN, 0),), {"w": Known((0,))}, 5),
        RepairState((Applied(UP, 0),), {"w": Known((1,))}, 5),
        RepairState((Applied(UP, 0),), {"w": Known((0,), 0)}, 5),
        RepairState((Applied(UP, 0),), {"w": Known((0,))}, 4),
        RepairState((Applied(UP, 0),), {"w": Known((0,))}, 5, "submitted"),
    ]
    ids = {workspaces.state_id("t", s) for s in [state, *others]} | {workspaces.state_id("u", state)}
    assert len(ids) == 7
    turned = RepairState(state.stack, {"b": Known(()), "a": Known(())}, 5)
    same = RepairState(state.stack, {"a": Known(()), "b": Known(())}, 5)
    assert workspaces.state_id("t", turned) == workspaces.state_id("t", same)


def test_what_is_learned_is_added(workspaces: Workspaces) -> None:
    state = RepairState((), {}, 5).learned("w", failing=(1,)).learned("w", broken=0)
    assert state.known == {"w": Known((1,), 0)}
