"""Builds the read-only system that sandboxed commands see, gives up all rights and becomes the spawner's interpreter.

Runs as a process of its own, in its own mount namespace, so nothing of it is mounted on the host. The tree:
`/sys` is what becomes the root of a command, `/store` holds the layers, `/ov` is where a command mounts its overlay,
`/proc` is the host's (the kernel lets a namespace mount its own proc only where a whole one is in sight).
Standard library only; loaded from source by the bootstrap in spawner.py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refork.envs.swe.sandbox import linux, wire

_DEVICES = ("null", "zero", "full", "random", "urandom")
_FOLDERS = ("proc", "testbed", "tmp", "dev/shm", "etc", "opt/bin", "opt/env", "opt/python", "run", "var", "empty")
_ETC = {
    "passwd": "root:x:0:0:root:/:/bin/sh\nagent:x:1000:1000:agent:/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hostname": "sandbox\n",
}


def run(config: Mapping[str, Any]) -> None:
    """Build, pivot, drop, exec; on failure tell the other end of the control socket why and exit."""
    control = socket.socket(fileno=config["control"])
    try:
        _enter_namespaces(config["uid"])
        root = config["mount_point"]
        _build(Path(root), config)
        linux.pivot(root)
        linux.make_read_only("/", recursive=False)
        _drop(config["uid"])
        _check_readable(config)
        os.execve("/opt/bin/python", ["python", "-c", config["bootstrap"], config["next"]], config["environment"])
    except OSError as error:
        wire.send(control, {"error": str(error), "errno": error.errno})
    os._exit(1)


def _enter_namespaces(uid: int | None) -> None:
    """As root a mount namespace is enough; an ordinary user needs a user namespace to be allowed one."""
    if uid is not None:
        linux.unshare(linux.CLONE_NEWNS)
    else:
        user, group = os.geteuid(), os.getegid()
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        linux.map_user(inside=user, outside=user, inside_group=group, outside_group=group)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)


def _drop(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def _check_readable(config: Mapping[str, Any]) -> None:
    """As the user that sandboxes run under. Raises PermissionError naming the host's folder."""
    for name, source in (("python", config["prefix"]), ("env", config["python_env"])):
        if not os.access(f"/opt/{name}", os.R_OK | os.X_OK):
            raise PermissionError(
                f"sandboxes cannot read {source}: give others the right to read it (chmod -R a+rX {source})"
            )


def _build(root: Path, config: Mapping[str, Any]) -> None:
    linux.mount("tmpfs", str(root), "tmpfs", linux.MS_NOSUID, "size=16m,mode=0755")
    for name in ("sys", "store", "ov", "proc", "refork"):
        (root / name).mkdir()
    _build_system(root / "sys", config)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "usr", "etc", "dev", "opt"):
        (root / name).symlink_to(f"sys/{name}")
    linux.bind("/proc", str(root / "proc"))
    linux.bind(config["store"], str(root / "store"))
    for name, path in config["sources"].items():
        (root / "refork" / name).write_bytes(Path(path).read_bytes())


def _build_system(system: Path, config: Mapping[str, Any]) -> None:
    for name in _FOLDERS:
        (system / name).mkdir(parents=True)
    (system / "usr").mkdir()
    _bind_read_only("/usr", system / "usr")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        _copy_root_entry(name, system, config["libpython"])
    for name in _DEVICES:
        (system / "dev" / name).touch()
        linux.bind(f"/dev/{name}", str(system / "dev" / name))
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (system / "dev" / name).symlink_to(target)
    (system / "var" / "tmp").symlink_to("/tmp")
    _write_etc(system / "etc")
    _bind_read_only(config["prefix"], system / "opt" / "python")
    if config["python_env"]:
        _bind_read_only(config["python_env"], system / "opt" / "env")
    for name in ("python", "python3"):
        (system / "opt" / "bin" / name).symlink_to(f"../python/{config['interpreter']}")


def _bind_read_only(source: str, target: Path) -> None:
    linux.bind(source, str(target))
    linux.make_read_only(str(target))


def _copy_root_entry(name: str, system: Path, libpython: str | None) -> None:
    """`/lib` and its kin: links into /usr on most hosts, else folders.

    A shared libpython outside /usr would not be found by the loader, whose cache is the host's: /lib, which it
    always searches, becomes a folder of links with libpython among them.
    """
    host = Path("/", name)
    if host.is_symlink() and name == "lib" and libpython:
        (system / name).mkdir()
        for entry in host.iterdir():
            (system / name / entry.name).symlink_to(f"/usr/lib/{entry.name}")
        (system / name / libpython).unlink(missing_ok=True)
        (system / name / libpython).symlink_to(f"/opt/python/lib/{libpython}")
    elif host.is_symlink():
        (system / name).symlink_to(host.readlink())
    elif host.is_dir():
        (system / name).mkdir()
        _bind_read_only(str(host), system / name)


def _write_etc(etc: Path) -> None:
    for name, text in _ETC.items():
        (etc / name).write_text(text)
    cache = Path("/etc/ld.so.cache")
    if cache.exists():
        (etc / cache.name).write_bytes(cache.read_bytes())
    if Path("/etc/alternatives").is_dir():
        (etc / "alternatives").mkdir()
        _bind_read_only("/etc/alternatives", etc / "alternatives")
