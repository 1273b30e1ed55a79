"""A package index of toy source distributions in a folder, and recipes for them: builds without a network."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sysconfig
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from refork.envs.swe.environment import STAMP, environment_stamp
from refork.envs.swe.recipe import EnvironmentRecipe

from tests.envs.swe.toy import CLEAN, TESTS

NAME = "reforktoy"
SITE = Path(sysconfig.get_paths()["purelib"])
OLD = CLEAN[: CLEAN.index("def first")] + CLEAN[CLEAN.index("def capped") :]
OLD_TESTS = TESTS[: TESTS.index("def test_first()")].replace("first, ", "")


def sdist(folder: Path, version: str, files: Mapping[str, str]) -> str:
    """Write NAME-version.tar.gz; its sha256."""
    path = folder / f"{NAME}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"{NAME}-{version}/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def toy_index(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions 1.0 and 0.9, the only packages that pip finds; their digests."""
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    new = {"calc.py": CLEAN, "tests/test_calc.py": TESTS, "docs/index.rst": "doc", "PKG-INFO": "Name: x"}
    old = {"calc.py": OLD, "tests/test_calc.py": OLD_TESTS}
    return {"1.0": sdist(folder, "1.0", new), "0.9": sdist(folder, "0.9", old)}


def toy_recipe(folder: Path, digests: Mapping[str, str], extra: str = "") -> None:
    """Recipes of NAME and of the environment in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "environment.toml").write_text("requirements = []\n")
    (folder / f"{NAME}.toml").write_text(
        f"""
package = "{NAME}"
version = "1.0"
sha256 = "{digests["1.0"]}"
split = "validation"
sources = ["*.py"]
tests = ["tests"]
{extra}
[mutation]
one = 3
two = 1
three = 0

[[pair]]
before = "0.9"
before_sha256 = "{digests["0.9"]}"
after = "1.0"
after_sha256 = "{digests["1.0"]}"
"""
    )


def toy_environment(folder: Path) -> None:
    """An installed environment with this interpreter's pytest, so that none is downloaded."""
    env = folder / "env"
    env.mkdir(parents=True)
    for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(SITE / name, env / name)
    shutil.copy(SITE / "py.py", env)
    stamp = environment_stamp(EnvironmentRecipe(requirements=()))
    (env / STAMP).write_text(json.dumps({"stamp": stamp}))
