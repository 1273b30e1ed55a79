"""What of the overlay backend works on this host: read from the kernel, changing nothing."""

from __future__ import annotations

import os
import platform
import re
import sys
from pathlib import Path

from refork.envs.home import home
from refork.envs.swe.sandbox.base import Finding, UnsupportedHost
from refork.envs.swe.sandbox.cgroup import memory_groups_here

_KERNEL = (5, 14)
_USERNS_SWITCHES = (
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
)
_NO_UPPER = ("overlay", "nfs", "nfs4", "vfat", "exfat", "fuse.", "9p", "virtiofs")


def probe() -> list[Finding]:
    """Findings for `refork doctor`, each with a remedy where it is not well."""
    return [_kernel(), _machine(), _user_namespaces(), _proc(), _overlay(), _seccomp(), _store(), _memory(), _python()]


def unsupported(error: str) -> UnsupportedHost:
    """The error of a step that the host refused, with the likely cause and what to do."""
    causes = [f"{f.detail}: {f.remedy}" for f in probe() if not f.ok]
    cause = "; ".join(causes) or "`refork doctor` shows what this host offers; the docker backend needs less"
    return UnsupportedHost(f"the overlay sandbox does not work here: {error}. {cause}")


def _kernel() -> Finding:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    ok = found is not None and (int(found[1]), int(found[2])) >= _KERNEL
    wanted = ".".join(map(str, _KERNEL))
    return Finding("kernel", ok, f"Linux {platform.release()}", f"needs Linux {wanted} or newer, or the docker backend")


def _machine() -> Finding:
    name = platform.machine()
    return Finding("machine", name in ("x86_64", "aarch64"), name, "needs x86_64 or aarch64, or the docker backend")


def _user_namespaces() -> Finding:
    for path, off in _USERNS_SWITCHES:
        switch = Path(path)
        if (
            switch.exists()
            and switch.read_text().strip() == off
            and (os.geteuid() != 0 or switch.name.startswith("max"))
        ):
            on = "28633" if off == "0" and switch.name.startswith("max") else str(1 - int(off))
            name = path.removeprefix("/proc/sys/").replace("/", ".")
            return Finding("user namespaces", False, f"{name} is {off}", f"as root: sysctl -w {name}={on}")
    ok = Path("/proc/self/ns/user").exists()
    return Finding("user namespaces", ok, "allowed" if ok else "not in this kernel", "use the docker backend")


def _proc() -> Finding:
    """In a container whose /proc is partly hidden, the kernel lets no user namespace mount its own."""
    rows = Path("/proc/self/mountinfo").read_text().splitlines()
    hidden = [row.split()[4] for row in rows if row.split()[4].startswith("/proc/")]
    hidden = [path for path in hidden if path != "/proc/sys/fs/binfmt_misc"]
    if not hidden:
        return Finding("own /proc", True, "can be mounted")
    remedy = "start the container with --security-opt systempaths=unconfined, or use the docker backend"
    return Finding("own /proc", False, f"{hidden[0]} is mounted over", remedy)


def _overlay() -> Finding:
    ok = "\toverlay\n" in Path("/proc/filesystems").read_text()
    return Finding("overlayfs", ok, "there" if ok else "not loaded", "as root: modprobe overlay")


def _seccomp() -> Finding:
    ok = Path("/proc/sys/kernel/seccomp/actions_avail").exists()
    return Finding("seccomp", ok, "there" if ok else "not in this kernel", "use the docker backend")


def _store() -> Finding:
    """The file system that would hold the layers: overlayfs must be able to use it for an upper layer."""
    folder = home() / "layers"
    while not folder.exists():
        folder = folder.parent
    kind = _file_system(folder)
    ok = not kind.startswith(_NO_UPPER)
    return Finding(
        "layer store", ok, f"{folder} on {kind}", "set REFORK_HOME to a folder on ext4, xfs, btrfs or tmpfs (a volume)"
    )


def _file_system(folder: Path) -> str:
    best, kind = "", "unknown"
    for row in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = row.partition(" - ")
        point = left.split()[4]
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def _memory() -> Finding:
    group = memory_groups_here()
    if group is not None:
        return Finding("memory limit", True, f"control group under {group}: for all processes of a command together")
    return Finding("memory limit", True, "by address space of each process: no memory control group can be made here")


def _python() -> Finding:
    found = Path(sys.base_prefix, f"bin/python{sys.version_info.major}.{sys.version_info.minor}")
    return Finding("python", found.exists(), str(found), "needs an installed Python with its interpreter under bin/")
