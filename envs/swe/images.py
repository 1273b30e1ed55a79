"""Images for sandboxes: one for all local tasks, and one made from each image that a task brings.

Both come from the Dockerfile beside this file, are labelled `refork.image`, and are found again by a tag that names
their content, so each is built once per daemon, by one process at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions
from refork.envs.forkable import InfraFailure
from refork.envs.home import home
from refork.envs.swe.lock import locked
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.envs.swe.sandbox.docker_client import connect, explain, infra
from refork.envs.swe.sandbox.manifest import digest_tree

DOCKERFILE = Path(__file__).with_name("Dockerfile")
BASE = "python:3.11-slim"
IMPORTED_BASE = "refork-base:bookworm"
IMAGE_LABEL = "refork.image"
_UNNEEDED = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale", "var/log")

_log = logging.getLogger(__name__)


def local_image(client: docker.APIClient, python_env: Path | None, base: str | None = None) -> str:
    """The image of local tasks: `base` (default: python:3.11-slim, else a Debian made here) with `python_env` in it.

    Returns its id; builds it when the daemon does not have it. Raises InfraFailure naming the image that is missing.
    """
    with locked(home() / "docker" / "images.lock"):
        return _built(client, base or base_image(client), python_env)


def task_image(client: docker.APIClient, image: str) -> str:
    """The image a task brings, made fit for a sandbox; pulled when missing. Raises InfraFailure naming it."""
    with locked(home() / "docker" / "images.lock"):
        return _built(client, _present(client, image), None)


def base_image(client: docker.APIClient) -> str:
    """python:3.11-slim where it is or can be pulled, else a Debian with Python imported from a debootstrap tree."""
    if _has(client, IMPORTED_BASE) and not _has(client, BASE):
        return IMPORTED_BASE
    try:
        return _present(client, BASE)
    except InfraFailure as failure:
        _log.warning("%s; making a Debian base instead (once, about half a minute)", failure)
        return _import_debian(client, failure)


def base_plan(client: docker.APIClient) -> str:
    """What `base_image` would use, in words, without doing it. Raises InfraFailure when it can tell that it would."""
    for image in (BASE, IMPORTED_BASE):
        if _has(client, image):
            return f"{image} is there"
    if _kept_debian().exists():
        return f"{BASE} will be pulled, else the Debian kept at {_kept_debian()} imported"
    return f"{BASE} will be pulled, else a Debian made by debootstrap" if _can_make() else f"{BASE} will be pulled"


def _has(client: docker.APIClient, image: str) -> bool:
    with infra(f"image {image} could not be looked up"):
        try:
            client.inspect_image(image)
        except docker.errors.ImageNotFound:
            return False
        return True


def _present(client: docker.APIClient, image: str) -> str:
    if not _has(client, image):
        repository, tag = pulled(image)
        try:
            client.pull(repository, tag=tag)
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise InfraFailure(f"image {image} is not there and cannot be pulled: {explain(error)}") from error
        if not _has(client, image):
            raise InfraFailure(f"image {image} is not there after a pull that reported no error")
    return image


def pulled(image: str) -> tuple[str, str | None]:
    """Repository and tag to pull; without a tag the daemon would pull them all. None: the name has a digest."""
    repository, _, tag = image.rpartition(":")
    if "@" in image:
        return image, None
    return (repository, tag) if repository and "/" not in tag else (image, "latest")


def _built(client: docker.APIClient, base: str, python_env: Path | None) -> str:
    with infra(f"image {base} could not be looked up"):
        base_id = client.inspect_image(base)["Id"]
    parts = (DOCKERFILE.read_text(), base_id, digest_tree(python_env) if python_env else "")
    tag = "refork-sandbox:" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    if not _has(client, tag):
        _build(client, tag, base, python_env)
    with infra(f"image {tag} could not be looked up"):
        return str(client.inspect_image(tag)["Id"])


def _build(client: docker.APIClient, tag: str, base: str, python_env: Path | None) -> None:
    options: dict[str, Any] = {
        "buildargs": {"BASE": base},
        "labels": {IMAGE_LABEL: base},
        "network_mode": "none",
        "tag": tag,
    }
    with _context(python_env) as context, infra(f"the sandbox image on top of {base} could not be built"):
        lines = client.build(fileobj=context, custom_context=True, rm=True, forcerm=True, decode=True, **options)
        log = [line.get("stream", "") + line.get("error", "") for line in lines]
    if not _has(client, tag):
        raise InfraFailure(f"the sandbox image on top of {base} could not be built: {explain_log(log)}")


def explain_log(log: list[str]) -> str:
    """The last words of a build, with the usual cures added."""
    return explain(RuntimeError("".join(log).strip()[-1000:]))


@contextlib.contextmanager
def _context(python_env: Path | None) -> Iterator[Any]:
    """The build context as an open tar file: the Dockerfile and the packages, owned by root, written by nobody else."""
    with tempfile.TemporaryFile() as target:
        with tarfile.open(fileobj=target, mode="w") as tar:
            tar.add(DOCKERFILE, "Dockerfile", filter=_root_owned)
            if python_env is not None:
                tar.add(python_env, "env", filter=_root_owned)
            else:
                tar.addfile(_folder("env"), io.BytesIO())
        target.seek(0)
        yield target


def _folder(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, 0o755
    return info


def _root_owned(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in info.name.split("/"):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _import_debian(client: docker.APIClient, cause: InfraFailure) -> str:
    kept = _kept_debian()
    if not kept.exists():
        _make_debian(kept, cause)
    with infra(f"image {IMPORTED_BASE} could not be imported from {kept}"), kept.open("rb") as source:
        client.import_image_from_data(source, repository="refork-base", tag="bookworm")
    if not _has(client, IMPORTED_BASE):
        raise InfraFailure(f"image {IMPORTED_BASE} could not be imported from {kept}")
    return IMPORTED_BASE


def _kept_debian() -> Path:
    return home() / "docker" / "base-bookworm.tar"


def _can_make() -> bool:
    return os.geteuid() == 0 and shutil.which("debootstrap") is not None


def _make_debian(target: Path, cause: InfraFailure) -> None:
    """A Debian tree with Python as a tar file at `target`, which appears only when it is whole."""
    if not _can_make():
        cure = "install debootstrap and run once as root, load an image named python:3.11-slim, or choose overlay"
        raise InfraFailure(f"{cause}; nor can a base be made here: {cure}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="debian-") as folder:
        tree, tar = Path(folder, "tree"), Path(folder, "base.tar")
        command = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(tree)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise InfraFailure(f"{cause}; debootstrap failed too: {(done.stdout + done.stderr).strip()[-1000:]}")
        for name in _UNNEEDED:
            shutil.rmtree(tree / name)
        subprocess.run(["tar", "--numeric-owner", "-C", str(tree), "-cf", str(tar), "."], check=True)
        tar.rename(target)


if __name__ == "__main__":
    try:
        print(base_image(connect()))
    except (InfraFailure, UnsupportedHost) as problem:
        sys.exit(str(problem).replace("\n", " "))
