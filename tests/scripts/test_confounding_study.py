"""The study of hidden confounding puts together what its runs found; the runs are made up."""

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from refork.scripts.bench import confounding
from refork.scripts.bench.confounding_plot import draw
from refork.scripts.bench.confounding_runs import TRIED, Cell, place

CELLS = [Cell(name, strength, 10, 1, 1) for name in ("clinic", "sepsis") for strength in (1.0, 5.0)]


def _made_up(value: float) -> dict[str, Any]:
    """Of every method the second setting is chosen; it is worth `value`, the others less."""
    metrics = {"changed_actions": 0.25, "worlds/adjustment": 0.5}
    row = {"chosen": {"alpha": 0.1}, "value": value, "values": [value - 1, value, value - 2], "estimates": [1, 3, 2]}
    return dict.fromkeys(TRIED, row | {"metrics": metrics}) | {"cpu_s": 60.0}


def _study(work: Path, monkeypatch: pytest.MonkeyPatch, done: bool = False) -> dict[str, Any]:
    monkeypatch.setattr(confounding, "cells", lambda quick: CELLS)
    monkeypatch.setattr(confounding, "known", lambda cell: {"behaviour": 0.5, "best": 9.0})
    options = argparse.Namespace(work=work, quick=False, seeds=2, done=done)
    with ThreadPoolExecutor(1) as pool:
        return confounding.study(options, pool)  # type: ignore[arg-type]


def test_what_is_kept_is_put_together_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cell in CELLS:
        for seed in range(2):
            place(tmp_path, cell, seed).write_text(json.dumps(_made_up(2.0 + seed)))
    found = _study(tmp_path, monkeypatch)
    for cell in CELLS:
        assert found[cell.title] == {method: [2.0, 2.5, 3.0] for method in TRIED}
        assert found["all_settings"][cell.title]["cql"][0] == [1.0, 1.5, 2.0]
        assert found["logs"][cell.title] == 2
        assert found["estimates"][cell.title]["delphic"] == [3, 3]
    assert set(found["worlds"]["clinic 5"]) == {"delphic", "delphic, adjusted"}
    assert found["cpu_minutes"] == pytest.approx(8.0)
    draw(json.loads(json.dumps(found)), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes()[1:4] == b"PNG"


def test_of_an_interrupted_study_what_is_done_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path, CELLS[0], 1).write_text(json.dumps(_made_up(2.0)))
    found = _study(tmp_path, monkeypatch, done=True)
    assert found["logs"] == {"clinic 1": 1}
    assert found["clinic 1"]["bc"] == [2.0, 2.0, 2.0]
