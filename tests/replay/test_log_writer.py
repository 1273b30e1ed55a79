"""Logs written piece by piece: the same as whole ones, or nothing at all."""

from pathlib import Path

import numpy as np
import pytest
from refork.envs.forkable import BadInput
from refork.replay.log_writer import LogWriter
from refork.replay.transitions import Transitions, digest, load, save

from tests.trainers.logs import log_for


def test_pieces_make_the_same_log_as_the_whole(tmp_path: Path) -> None:
    log = log_for("factored_continuous", episodes=10)
    with LogWriter(tmp_path / "pieces", log.spec) as writer:
        for part in np.split(np.arange(10), [3, 4]):
            writer.append(log.subset(part))
        writer.notes = {"rows": 60}
    save(log, tmp_path / "whole")
    assert digest(load(tmp_path / "pieces")) == digest(load(tmp_path / "whole")) == digest(log)
    for name in ("observations", "starts", "actions"):
        pieces, whole = (tmp_path / kind / f"{name}.npy" for kind in ("pieces", "whole"))
        assert np.array_equal(np.load(pieces), np.load(whole))


def _write(folder: Path, *pieces: Transitions) -> None:
    with LogWriter(folder, pieces[0].spec) as writer:
        for piece in pieces:
            writer.append(piece)


def test_a_fault_leaves_nothing_behind(tmp_path: Path) -> None:
    log = log_for("discrete", episodes=3)
    save(log, tmp_path / "log")
    before = digest(load(tmp_path / "log"))
    with pytest.raises(ValueError, match="float32"):
        _write(tmp_path / "log", log, log_for("continuous", episodes=2))
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert digest(load(tmp_path / "log")) == before


def test_a_log_of_nothing_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no decisions"), LogWriter(tmp_path / "log", log_for("discrete").spec):
        pass
    assert list(tmp_path.iterdir()) == []
