"""Which games a job has: splits apart, options checked, a user's own folders."""

import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from refork.cluster.game_tasks import GameSource
from refork.envs.forkable import BadInput
from refork.trainers.config import EnvConfig


def _source(tasks: Path | None = None, options: dict[str, Any] | None = None, **env: Any) -> GameSource:
    return GameSource(EnvConfig(id="refork/GraphGame-v0", tasks=tasks, options=options or {}, **env))


SMALL = {"domains": ["charging"], "sizes": [4], "instances": 3, "validation": 2, "held_out": 1}


def test_splits_share_no_game_and_have_sizes_of_their_own() -> None:
    source = _source(options={**SMALL, "evaluate_sizes": [4, 6]})
    names = {split: source.names(split) for split in ("train", "validation", "held_out")}  # type: ignore[arg-type]
    assert names["train"][:4] == [
        *(f"charging-regular-n4-{i}" for i in range(3)),
        "charging-irregular-n4-0",
    ]
    assert [len(own) for own in names.values()] == [6, 8, 4]
    assert len(set().union(*names.values())) == 18
    assert source.cell("charging-irregular-n6-7") == "charging/irregular/6"


def test_games_are_made_as_the_options_say() -> None:
    source = _source(options={**SMALL, "horizon": 5, "noise": 0.2, "alignment": "identical", "clearing": "exact"})
    game = source.game(["charging-regular-n4-0", "charging-regular-n6-0"], [1, 2])
    assert (game.horizon, game.alignment, game.clearing) == (5, "identical", "exact")
    assert (game.demand != game.expected).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domain": ["charging"]}, r"env\.options\.domain: no such option; did you mean domains\?"),
        ({"domains": ["chargin"]}, r"env\.options\.domains: no domain 'chargin'; did you mean charging\?"),
        ({"couplings": ["x"]}, r"env\.options\.couplings: no coupling 'x'; there are: regular, irregular"),
        ({"sizes": [20, 20]}, r"env\.options\.sizes: 20 is listed twice"),
        ({"sizes": [2]}, r"env\.options\.sizes\.0: input should be greater than or equal to 3, got 2"),
        ({"noise": 1.0}, r"env\.options\.noise: input should be less than 1, got 1\.0"),
        ({"horizon": 0}, r"env\.options\.horizon: .* got 0"),
        ({"instances": 10**6}, r"env\.options\.instances: .* less than or equal to 100000, got 1000000"),
        ({"alignment": "shared"}, r"env\.options\.alignment: .*'general', got 'shared'"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        _source(options=options)
    assert "\n" not in str(caught.value)


def test_keys_of_software_tasks_are_refused() -> None:
    with pytest.raises(BadInput, match=r"env\.held_out: generated games are split by number; set env\.options\.held"):
        _source(held_out=("toolz",))
    with pytest.raises(BadInput, match=r"env\.backend, env\.cache: are for software tasks"):
        _source(backend="docker")


def _write_game(folder: Path, sites: int = 3, horizon: int = 4) -> None:
    folder.mkdir(parents=True)
    (folder / "game.toml").write_text(f"horizon = {horizon}\n")
    names = [f"s{i}" for i in range(sites)]
    for side in ("demand", "supply"):
        (folder / f"{side}_nodes.csv").write_text("id\n" + "\n".join(names) + "\n")
        edges = [f"{a},{b}" for a, b in pairwise(names)]
        (folder / f"{side}_edges.csv").write_text("source,target\n" + "\n".join(edges) + "\n")
    (folder / "coupling.csv").write_text("site,node\n" + "\n".join(f"{n},{n}" for n in names) + "\n")


def test_own_games_are_folders_and_some_are_kept_back(tmp_path: Path) -> None:
    for name in ("east", "north", "west"):
        _write_game(tmp_path / name)
    source = _source(tmp_path, held_out=("west",))
    assert source.names("train") == ["east", "north"]
    assert source.names("held_out") == ["west"]
    assert source.names("validation") == []
    assert source.size("east") == 3
    assert source.game(["east", "west"], [0, 1]).horizon == 4
    assert _source(tmp_path / "east").names("train") == ["east"]


def test_what_is_wrong_with_own_games_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"env\.tasks: there is no folder"):
        _source(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"env\.tasks: neither .* nor a folder in it holds a coupling\.csv"):
        _source(tmp_path)
    _write_game(tmp_path / "east")
    _write_game(tmp_path / "long", horizon=9)
    with pytest.raises(BadInput, match=r"env\.held_out: no game 'westt' in .*; there are: east, long"):
        _source(tmp_path, held_out=("westt",))
    with pytest.raises(BadInput, match=r"env\.options\.sizes: is for generated games"):
        _source(tmp_path, {"sizes": [4]})
    with pytest.raises(BadInput, match=r"long has 9 rounds, east 4: games of one run must have the same horizon"):
        _source(tmp_path).game(["east", "long"], [0, 0])


def test_a_source_is_sent_as_its_settings() -> None:
    source = _source(options=SMALL)
    source.instance("charging-regular-n4-0")
    assert len(pickle.dumps(source)) < 2000
    again = pickle.loads(pickle.dumps(source))
    assert again.instance("charging-regular-n4-0").digest() == source.instance("charging-regular-n4-0").digest()
