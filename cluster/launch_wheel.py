"""The wheel of this refork, as a cluster takes it: named by its content, and without the list of what it depends on.

By content, because Ray takes two wheels of one name for the same. Without the list, because Ray installs a wheel with
all that it asks for: torch would be downloaded on every node, beside the one that is there.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from refork.envs.forkable import InfraFailure

_EPOCH = (2020, 1, 1, 0, 0, 0)
"""Time of every file in it, so that equal content is an equal wheel."""


def build_wheel(folder: Path) -> Path:
    """A wheel of the refork that runs here, in `folder`: from the source tree when it is installed from one in place
    (editable), else from the installed files. Raises InfraFailure."""
    tree = _source_tree()
    files = _from_source(tree, folder) if tree else _installed()
    return _pack(files, folder)


def _installation() -> importlib.metadata.Distribution:
    """What pip installed; a source tree on the path holds an `egg-info` of the same name. Raises InfraFailure."""
    for found in importlib.metadata.distributions(name="refork"):
        if found.read_text("RECORD"):
            return found
    raise InfraFailure("refork is not installed here, so there is nothing to send: pip install it first")


def _source_tree() -> Path | None:
    """Of an editable installation, by what pip noted (PEP 610)."""
    noted = _installation().read_text("direct_url.json")
    origin = json.loads(noted) if noted else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def _from_source(tree: Path, folder: Path) -> dict[str, bytes]:
    """Built from a copy of what belongs in it: the tree stays as it is, and its old `build` folder out of the wheel."""
    copy = folder / "source"
    copy.mkdir()
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))
    for name in ("pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]):
        shutil.copy(tree / name, copy)
    for room in project["tool"]["setuptools"]["package-dir"].values():
        shutil.copytree(tree / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy)]
    if importlib.util.find_spec("setuptools"):  # else pip fetches it
        command.insert(-1, "--no-build-isolation")
    built = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if built.returncode:
        said = (built.stderr.strip() or built.stdout.strip()).splitlines() or ["no reason given"]
        raise InfraFailure(f"{tree}: no wheel could be built: {said[-1]}; try: pip wheel --no-deps {tree}")
    (wheel,) = folder.glob("refork-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _installed() -> dict[str, bytes]:
    """The files of an ordinary installation, by their names in a wheel."""
    distribution = _installation()
    names = [f for f in distribution.files or [] if f.parts[0] == "refork" or f.parts[0].endswith(".dist-info")]
    own = [f for f in names if f.suffix != ".pyc" and f.name not in ("INSTALLER", "REQUESTED", "direct_url.json")]
    return {str(f): Path(str(distribution.locate_file(f))).read_bytes() for f in own}


def _pack(files: Mapping[str, bytes], folder: Path) -> Path:
    kept = {name: _without_needs(name, data) for name, data in sorted(files.items()) if not name.endswith("/RECORD")}
    info = next(name.split("/")[0] for name in kept if name.endswith(".dist-info/METADATA"))
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in kept.items())
    content = hashlib.sha256(record.encode()).hexdigest()[:16]
    kept[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    (folder / "sent").mkdir()
    wheel = folder / "sent" / f"{info.removesuffix('.dist-info')}-0_{content}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in kept.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return wheel


def _without_needs(name: str, data: bytes) -> bytes:
    if not name.endswith(".dist-info/METADATA"):
        return data
    head, blank, text = data.partition(b"\n\n")
    lines = [line for line in head.split(b"\n") if not line.startswith((b"Requires-Dist:", b"Provides-Extra:"))]
    return b"\n".join(lines) + blank + text


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
