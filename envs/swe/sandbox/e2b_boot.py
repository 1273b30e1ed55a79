"""What a machine of the service needs before it can be a sandbox: one archive, unpacked by root, and how to ask it."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from refork.envs.forkable import InfraFailure
from refork.envs.swe.sandbox.base import SANDBOX_UID, VOLATILE
from refork.envs.swe.sandbox.docker_boot import MACHINES, PACKAGE, SUPERVISOR
from refork.envs.swe.sandbox.e2b_inside import FOLDER, MARK, ROOTS
from refork.envs.swe.sandbox.manifest import digest_tree, normal_mode
from refork.envs.swe.sandbox.seccomp import filter_program

ARCHIVE = f"{FOLDER}.tar.gz"
INLINE_BYTES = 90_000
"""A longer request goes as a file: the kernel takes 128 KiB in one argument."""
_MODULES = (*SUPERVISOR, "e2b_inside")
_FIND_PYTHON = (
    "for p in python3 python /usr/local/bin/python3 /usr/bin/python3; do "
    "\"$p\" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break; p=; done; "
    '[ -n "$p" ] || { echo "the template has no Python 3.9 or newer" >&2; exit 3; }; '
)
PREPARE = (
    f"set -e; tar --numeric-owner -xzpf {ARCHIVE} -C /; rm {ARCHIVE}; {_FIND_PYTHON}"
    f'ln -sf "$(command -v "$p")" {FOLDER}/python; export PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin; '
    'command -v python >/dev/null || ln -s "$(command -v "$p")" /opt/bin/python'
)
"""Shell command that makes a machine ready once ARCHIVE is there."""
_ENTRY = f"import sys; sys.path.insert(0, '{FOLDER}/lib'); from {PACKAGE}.e2b_inside import main; main()"


def ask_command(argument: str) -> str:
    """The shell command that does one packed request."""
    return f"exec {FOLDER}/python -I -S -c \"{_ENTRY}\" '{argument}'"


def pack(request: Mapping[str, Any], body: bytes) -> bytes:
    """A request as `e2b_inside.read_request` takes it."""
    head = json.dumps(request).encode()
    return zlib.compress(len(head).to_bytes(4, "big") + head + body, 1)


def unpack(output: str) -> dict[str, Any] | None:
    """The reply in what a request printed; None when there is none."""
    _, mark, rest = output.rpartition(MARK)
    data = base64.b64decode(rest.strip()) if mark else b""
    return json.loads(zlib.decompress(data)) if data else None


def base_key(base_id: str, python_env: Path | None, template: str) -> str:
    """Names everything that a prepared machine depends on, in 32 hex digits."""
    parts = [base_id, digest_tree(python_env) if python_env else "", template, PREPARE, json.dumps(_config())]
    parts += [_source(name) for name in _MODULES]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def write_archive(target: IO[bytes], base: Path, python_env: Path | None) -> None:
    """Our modules, the workspace, an empty /tmp and the packages, as a gzipped tar file from the root on."""
    with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1) as tar:
        for place in ("opt", "opt/bin", "opt/env", "testbed"):
            tar.addfile(_folder(place, 0o755))
        tar.addfile(_folder(FOLDER[1:], 0o700))
        for place, data in _own_files():
            info = tarfile.TarInfo(f"{FOLDER[1:]}/{place}")
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
        for place, mode in zip(ROOTS.values(), (0o755, 0o1777), strict=True):
            tar.addfile(_owned(_folder(place[1:], mode), SANDBOX_UID))
        _add_tree(tar, base, ROOTS["/testbed"][1:], SANDBOX_UID)
        if python_env is not None:
            _add_tree(tar, python_env, "opt/env", 0)


def _own_files() -> Iterable[tuple[str, bytes]]:
    yield "config.json", json.dumps(_config()).encode()
    parts = PACKAGE.split(".")
    for depth in range(len(parts)):
        yield f"lib/{'/'.join(parts[: depth + 1])}/__init__.py", b""
    for name in _MODULES:
        yield f"lib/{'/'.join(parts)}/{name}.py", _source(name).encode()


def _config() -> dict[str, Any]:
    filters = {machine: base64.b64encode(filter_program(machine)).decode() for machine in MACHINES}
    return {"uid": SANDBOX_UID, "volatile": VOLATILE, "filters": filters}


def _source(name: str) -> str:
    found = importlib.util.find_spec(f"{PACKAGE}.{name}")
    if found is None or found.origin is None:
        raise InfraFailure(f"the source of {PACKAGE}.{name} is not installed")
    return Path(found.origin).read_text()


def _folder(place: str, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(place)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info


def _owned(info: tarfile.TarInfo, uid: int) -> tarfile.TarInfo:
    info.uid = info.gid = uid
    info.uname = info.gname = ""
    return info


def _add_tree(tar: tarfile.TarFile, folder: Path, place: str, uid: int) -> None:
    """The content of `folder` below `place` with a base's modes, without what is volatile."""

    def normal(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        vars(tar)["inodes"].clear()  # names of one file become files of their own, as in every sandbox
        if info.isdir() and os.path.basename(info.name) in VOLATILE:
            return None
        info.mode = 0o755 if info.isdir() else normal_mode(info.mode)
        return _owned(info, uid)

    for entry in sorted(folder.iterdir()):
        tar.add(entry, f"{place}/{entry.name}", filter=normal)
