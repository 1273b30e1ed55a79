"""Random shell commands on a workspace, and a plain folder that obeys them as the model of a sandbox."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

from refork.envs.swe.sandbox.base import TMP, VOLATILE, WORKSPACE, Entry
from refork.envs.swe.sandbox.manifest import base_manifest, copy_base, difference, digest_file, digest_link, kind_of

NAMES = ("a", "b", "c", "pkg", "pkg/a.py", "pkg/inner", "pkg/inner/b.py", "README", "empty", "link", "run.sh", "d/e/f")
TEMPLATES = (
    "echo {n} > {p}",
    "echo {n} >> {p}",
    "printf 'A = 1\\n' > {p}",
    "rm -rf {p}",
    "rm -f {p}",
    "mkdir {p}",
    "mkdir -p {p}/x",
    "mv {p} {q}",
    "mv -T {p} {q}",
    "cp {p} {q}",
    "cp -r {p} /tmp/copy{n}",
    "ln -s {q} {p}",
    "ln -sfn {q} {p}",
    "rmdir {p}",
    "chmod {m} {p}",
    "touch {p}",
    "mkfifo pipe{n}",
    "mv -f pipe{n} empty/",
    "truncate -s {n} {p}",
    "mkdir -p {p}/__pycache__ && echo {n} > {p}/__pycache__/x.pyc",
    "find {p} -type f -name '*.py' -delete",
    "for i in 1 2 3; do echo $i > {p}$i; done",
    "rm -rf {p} && mkdir {p} && echo {n} > {p}/new",
)
MODES = ("744", "755", "700", "750", "711", "777")


def random_command(rng: random.Random) -> str:
    """One command; what it does depends on the workspace only, and it never leaves it or /tmp."""
    place = rng.choice(("", "", "", "/tmp/"))
    values = {
        "p": place + rng.choice(NAMES),
        "q": rng.choice(NAMES),
        "n": str(rng.randrange(5)),
        "m": rng.choice(MODES),
    }
    return rng.choice(TEMPLATES).format(**values)


class PlainTree:
    """A copy of the base in a plain folder; commands run there as they are, /tmp being a folder beside it."""

    def __init__(self, base: Path, folder: Path) -> None:
        self.base = base_manifest(base)
        self.root = folder / "now"
        self.root.mkdir(parents=True)
        copy_base(base, self.root / "work")
        (self.root / "tmp").mkdir()
        (self.root / "tmp").chmod(0o1777)
        self.folder = folder

    def run(self, command: str) -> None:
        moved = command.replace("/tmp/", f"{self.root}/tmp/")
        subprocess.run(
            ["sh", "-c", f"umask 022; {moved}"], cwd=self.root / "work", capture_output=True, check=False, timeout=30
        )
        self._drop_volatile()

    def _drop_volatile(self) -> None:
        for folder, folders, _ in os.walk(self.root):
            for name in [n for n in folders if n in VOLATILE]:
                shutil.rmtree(Path(folder, name))
                folders.remove(name)

    @property
    def changes(self) -> dict[str, Entry]:
        current = {}
        for name, path in (("work", WORKSPACE), ("tmp", TMP)):
            top = self.root / name
            current[path] = Entry("dir", stat.S_IMODE(top.stat().st_mode), "")
            for found in sorted(top.rglob("*")):
                current[f"{path}/{found.relative_to(top)}"] = _entry(found)
        return difference(self.base, current)

    def save(self, name: str) -> None:
        subprocess.run(["cp", "-a", str(self.root), str(self.folder / name)], check=True)

    def load(self, name: str) -> None:
        shutil.rmtree(self.root)
        subprocess.run(["cp", "-a", str(self.folder / name), str(self.root)], check=True)


def _entry(path: Path) -> Entry:
    info = path.lstat()
    kind = kind_of(info.st_mode)
    assert kind is not None
    digest = digest_file(path) if kind == "file" else digest_link(path) if kind == "link" else ""
    return Entry(kind, stat.S_IMODE(info.st_mode), digest)
