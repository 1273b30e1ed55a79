"""The few Linux calls the standard library lacks, each raising OSError with what was attempted.

Standard library only: this module is also loaded inside the sandbox's own spawner.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 1 << 18
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
COMMAND_NAMESPACES = 0x7E020000
"""user, mount, pid, net, ipc, uts and cgroup namespaces."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SIGKILL, _SIGCHLD, _CLONE_PIDFD, _MNT_DETACH = 9, 17, 0x1000, 2
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID = 0x1, 0x2
_CAPABILITY_VERSION_3 = 0x20080522

_LIBC = ctypes.CDLL(None, use_errno=True)
_NUMBERS = {
    "x86_64": {"clone": 56, "capset": 126, "pivot_root": 155},
    "aarch64": {"clone": 220, "capset": 91, "pivot_root": 41},
}


def machine() -> str:
    """The kernel's name of this architecture; OSError when no system call table is held for it."""
    name = platform.machine()
    if name not in _NUMBERS:
        raise OSError(f"no system call table for {name}; known: {', '.join(_NUMBERS)}")
    return name


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    """mount(2); strings are encoded as file names."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    options = None if data is None else os.fsencode(data)
    _check(_LIBC.mount(*encoded, ctypes.c_ulong(flags), options), f"mount {kind or 'bind'} at {target}")


def bind(source: str, target: str) -> None:
    """Make `source`, with all that is mounted below it, appear at `target` too."""
    mount(source, target, None, MS_BIND | MS_REC)


def make_read_only(target: str, *, recursive: bool = True) -> None:
    """Read-only and without set-id bits from now on; adds to the flags the mounts have already."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    arguments = (_AT_FDCWD, os.fsencode(target), flags, attributes, ctypes.c_size_t(len(attributes)))
    _check(_LIBC.syscall(_MOUNT_SETATTR, *arguments), f"mount_setattr read-only at {target}")


def detach(target: str) -> None:
    """Lazily unmount `target` and all below it."""
    _check(_LIBC.umount2(os.fsencode(target), _MNT_DETACH), f"unmount {target}")


def pivot(root: str) -> None:
    """Make `root` the root of this mount namespace and drop the old one from it."""
    os.chdir(root)
    _check(_LIBC.syscall(_NUMBERS[machine()]["pivot_root"], b".", b"."), f"pivot_root to {root}")
    detach(".")
    os.chdir("/")


def unshare(flags: int) -> None:
    _check(_LIBC.unshare(flags), "unshare of namespaces")


def clone(flags: int) -> tuple[int, int]:
    """fork(2) into new namespaces; (process id, pidfd) in the parent, (0, -1) in the child.

    The child's libc has not noticed the fork: it may make system calls and fork properly, and little else.
    """
    pidfd = ctypes.c_int(-1)
    address = ctypes.cast(ctypes.pointer(pidfd), ctypes.c_void_p)
    arguments = (ctypes.c_ulong(flags | _CLONE_PIDFD | _SIGCHLD), None, address, None, None)
    pid = _check(_LIBC.syscall(_NUMBERS[machine()]["clone"], *arguments), "clone into new namespaces")
    return pid, (pidfd.value if pid else -1)


def die_with_parent() -> None:
    """SIGKILL this process when the thread that made it ends. Lost on a change of user id."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "prctl PDEATHSIG")


def set_dumpable(value: bool) -> None:
    """Whether processes of the same user may look into this one."""
    _check(_LIBC.prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0), "prctl DUMPABLE")


def drop_bounding_set() -> None:
    """No exec from here on may gain a capability."""
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break


def drop_privileges() -> None:
    """Give up every capability, also of the bounding and ambient sets, and the gaining of new ones by exec."""
    drop_bounding_set()
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _check(_LIBC.syscall(_NUMBERS[machine()]["capset"], header, bytes(24)), "capset")
    _check(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl NO_NEW_PRIVS")


def install_filter(program: bytes) -> None:
    """Install a seccomp filter (struct sock_filter rows). Needs no_new_privs."""
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _check(_LIBC.prctl(_PR_SET_SECCOMP, 2, header, 0, 0), "seccomp filter")


def map_user(inside: int, outside: int, inside_group: int, outside_group: int) -> None:
    """In a fresh user namespace: one user, one group, no way to drop a group."""
    for name, text in (
        ("uid_map", f"{inside} {outside} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{inside_group} {outside_group} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)
