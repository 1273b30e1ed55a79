"""Source distributions, pinned by sha256, from the package index that the user's pip is set to."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from refork.envs.forkable import InfraFailure
from refork.envs.swe import pip_fetch

FETCH_S = 600.0


@dataclass(frozen=True, order=True)
class Pin:
    """One source distribution: name and version on the index, and the sha256 of the file."""

    name: str
    version: str
    sha256: str

    @property
    def label(self) -> str:
        return f"{self.name}-{self.version}"


@dataclass(frozen=True)
class Fetched:
    """What could be had, by pin, and why the rest could not."""

    files: dict[Pin, Path]
    errors: dict[Pin, str]


def fetch(pins: Iterable[Pin], folder: Path) -> Fetched:
    """Have all `pins` in `folder`, downloading only what is not there yet. Files of another digest are an error.

    Raises InfraFailure when pip itself cannot be run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = sorted(set(pins))
    files = {pin: path for pin in wanted if (path := _present(pin, folder)) is not None}
    missing = [pin for pin in wanted if pin not in files]
    errors: dict[Pin, str] = {}
    answers = _pip(missing, folder) if missing else {}
    for pin in missing:
        answer = answers[f"{pin.name}=={pin.version}"]
        if isinstance(answer, dict):
            errors[pin] = f"{pin.label} could not be downloaded: {answer['error']}"
        elif (digest := _sha256(folder / answer)) != pin.sha256:
            errors[pin] = f"{answer} has sha256 {digest}, the recipe says {pin.sha256}: not the released file"
            (folder / answer).unlink()
        else:
            (folder / answer).rename(files.setdefault(pin, _kept(pin, folder)))
    return Fetched(files, errors)


def _kept(pin: Pin, folder: Path) -> Path:
    return folder / f"{pin.label}-{pin.sha256[:12]}.tar.gz"


def _present(pin: Pin, folder: Path) -> Path | None:
    path = _kept(pin, folder)
    return path if path.exists() and _sha256(path) == pin.sha256 else None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pip(pins: list[Pin], folder: Path) -> dict[str, str | dict[str, str]]:
    # -P: the script's own folder must not shadow packages
    command = [sys.executable, "-P", pip_fetch.__file__, str(folder)]
    rows = json.dumps([[pin.name, pin.version] for pin in pins])
    done = subprocess.run(command, input=rows, capture_output=True, text=True, timeout=FETCH_S, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InfraFailure(f"pip of {sys.executable} cannot download ({reason}); try: {sys.executable} -m ensurepip")
    answers: dict[str, str | dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return answers
