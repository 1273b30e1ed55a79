"""A place for runs that outlives this machine: any URL that fsspec knows. Below it, one folder a run.

A file there is whole or not there: object stores put in one step, elsewhere it is sent aside and renamed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from refork.cluster.checkpoint_folder import COMMIT, NAME, age
from refork.envs.forkable import BadInput

log = logging.getLogger("refork.storage")

OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "r2")
"""Protocols without folders, where putting a file is one step. Making a folder there would make a bucket."""
_CREDENTIALS = dict.fromkeys(("s3", "s3a"), "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY")
PART = ".part"
CHECKPOINTS = "checkpoints"


class Storage:
    """Files by their path below a URL. Whatever the protocol's library raises goes through."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        """`system`: fsspec's file system; `root`: the path in it that `url` stands for."""
        self.url, self._system, self._root = url.rstrip("/"), system, root.rstrip("/")
        protocol = url.partition("://")[0]
        self._in_one_step = protocol in OBJECT_STORES

    def below(self, name: str) -> Storage:
        """The storage of one run or folder in here."""
        return Storage(f"{self.url}/{name}", self._system, f"{self._root}/{name}")

    def put(self, local: Path, name: str) -> None:
        """Send a file; what was there is replaced."""
        self._place(name, lambda target: self._system.put_file(str(local), target))

    def write(self, name: str, content: bytes) -> None:
        self._place(name, lambda target: self._system.pipe_file(target, content))

    def _place(self, name: str, send: Any) -> None:
        target = self._path(name)
        if self._in_one_step:
            send(target)
            return
        self._system.makedirs(target.rpartition("/")[0], exist_ok=True)
        send(target + PART)
        self._system.mv(target + PART, target)

    def get(self, name: str, local: Path) -> None:
        local.parent.mkdir(parents=True, exist_ok=True)
        self._system.get_file(self._path(name), str(local))

    def read(self, name: str) -> bytes | None:
        """None: it is not there."""
        try:
            return bytes(self._system.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def files(self, folder: str = "") -> dict[str, int]:
        """Path below `folder` and size of every whole file in it."""
        top = self._path(folder) if folder else self._root
        self._system.invalidate_cache()
        found = self._system.find(top, detail=True) if self._system.exists(top) else {}
        inner = {path[path.index(top.lstrip("/")) + len(top.lstrip("/")) :].lstrip("/"): i for path, i in found.items()}
        return {
            path: int(info["size"] or 0)
            for path, info in inner.items()
            if path and not path.endswith(PART) and ".." not in path.split("/")
        }

    def folders(self) -> list[str]:
        """Names of what lies right in here."""
        self._system.invalidate_cache()
        if not self._system.exists(self._root):
            return []
        return sorted(info["name"].rstrip("/").rpartition("/")[2] for info in self._system.ls(self._root, detail=True))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._system.rm_file(self._path(name))

    def delete_folder(self, name: str) -> None:
        if not self._in_one_step:  # files of object stores leave no folder behind
            self._system.rm(self._path(name), recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def checkpoints(self) -> tuple[list[str], dict[str, list[str]]]:
        """Of a run: names of the committed ones, oldest first; and the files of all, whole or not."""
        empty = [] if self._in_one_step else self.below(CHECKPOINTS).folders()  # a deletion was cut off
        files: dict[str, list[str]] = {name: [] for name in empty if NAME.match(name)}
        for path in self.files(CHECKPOINTS):
            name = path.partition("/")[0]
            if NAME.match(name):
                files.setdefault(name, []).append(f"{CHECKPOINTS}/{path}")
        whole = [name for name, inside in files.items() if f"{CHECKPOINTS}/{name}/{COMMIT}" in inside]
        return sorted(whole, key=age), files


def open_storage(url: str, probe: bool = True) -> Storage:
    """The place that a URL means; `probe`: a file was written there, read and deleted. Raises BadInput."""
    storage = _storage_at(url)
    if probe:
        _probe(storage)
    return storage


def check_credentials(url: str) -> None:
    """Raises BadInput for a password in a URL: it would be kept in every copy of the job."""
    protocol, _, place = url.partition("://")
    person, at, rest = place.rpartition("@")
    if at and ":" in person and protocol not in ("file", "local"):
        raise BadInput(
            f"storage: {protocol}://***@{rest}: holds a password, which would be kept in job.toml: leave it out; "
            f"credentials belong in the environment ({_CREDENTIALS.get(protocol, f'what fsspec reads for {protocol}')})"
        )


def _storage_at(url: str) -> Storage:
    check_credentials(url)
    protocol, found, path = url.partition("://")
    if not found or not path.strip("/"):
        raise BadInput(
            f"storage: {url!r} is no URL of a folder; give one such as s3://bucket/runs or file:///shared/runs"
        )
    from fsspec import available_protocols
    from fsspec.core import url_to_fs

    if protocol not in available_protocols():
        raise BadInput(f"storage: {url}: unknown protocol {protocol!r}; common ones: file, s3, gs, az, sftp, smb")
    try:
        system, root = url_to_fs(url)
    except ImportError as error:
        extra = "pip install 'refork[s3]'" if protocol in ("s3", "s3a") else _one_line(error)
        raise BadInput(f"storage: {url}: {protocol} needs a package that is not installed: {extra}") from error
    except Exception as error:
        raise BadInput(f"storage: {url}: cannot be opened: {reason(error)}; {_advice(protocol)}") from error
    return Storage(url, system, root)


def _probe(storage: Storage) -> None:
    name, content = f".refork-probe-{secrets.token_hex(4)}", b"refork"
    try:
        storage.write(name, content)
        read = storage.read(name)
        storage.delete([name])
    except Exception as error:
        protocol = storage.url.partition("://")[0]
        raise BadInput(f"storage: {storage.url}: cannot be written: {reason(error)}; {_advice(protocol)}") from error
    if read != content:
        raise BadInput(f"storage: {storage.url}: gives back other bytes than were written; use another storage")


def reason(error: BaseException) -> str:
    """What a protocol's library said, in one line."""
    said = _one_line(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _advice(protocol: str) -> str:
    if protocol in ("s3", "s3a"):
        return "check the bucket, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL"
    if protocol in ("file", "local"):
        return "check the path and its permissions"
    return f"check the address and the credentials of {protocol}"
