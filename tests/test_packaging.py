"""The package list is complete, all names in the wheel start with refork/, arrows between rooms go one way."""

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("agents", "cluster", "envs", "replay", "scripts", "trainers")
ALLOWED = {
    "envs": {"envs"},
    "agents": {"agents", "envs"},
    "replay": {"replay", "envs"},
    "trainers": {"trainers", "replay", "agents", "envs"},
    "cluster": {"cluster", "trainers", "replay", "agents", "envs"},
    "scripts": set(ROOMS),
}
SHARED = ("refork.envs.forkable", "refork.envs.log_spec", "refork.envs.topology")
"""What agents and replay may know of environments."""
INNER = ("agents", "envs", "replay", "trainers")


def _imports(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def _sources(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_arrows_between_rooms_go_one_way(room: str) -> None:
    for path in _sources(room):
        for name in _imports(path):
            if name.startswith("refork."):
                target = name.split(".")[1]
                assert target in ALLOWED[room], f"{path.relative_to(ROOT)}: {room} imports {name}"
                if room in ("agents", "replay"):
                    assert target != "envs" or name.startswith(SHARED), f"{path}: {room} imports {name}"


@pytest.mark.parametrize("room", INNER)
def test_only_cluster_and_scripts_know_ray(room: str) -> None:
    for path in _sources(room):
        assert not [n for n in _imports(path) if n.split(".")[0] == "ray"], path


def test_replay_knows_no_torch() -> None:
    for path in _sources("replay"):
        assert not [n for n in _imports(path) if n.split(".")[0] == "torch"], path


def test_every_package_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        "refork." + ".".join(p.parent.relative_to(ROOT).parts)
        for room in ROOMS
        for p in (ROOT / room).rglob("__init__.py")
    }
    assert listed == found


def test_names_in_the_wheel_start_with_refork(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    assert all(n.startswith(("refork/", "refork-0")) for n in names), names
    assert "refork/envs/forkable.py" in names
    assert any(n.startswith("refork/trainers/recipes/") and n.endswith(".toml") for n in names)
