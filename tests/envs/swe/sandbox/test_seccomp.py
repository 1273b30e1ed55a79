"""The filter of either machine, interpreted here: which calls it lets through and how it refuses the others."""

from __future__ import annotations

import errno
import struct

import pytest
from refork.envs.swe.sandbox.seccomp import filter_program

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def verdict(machine: str, number: int, argument: int = 0, audit: int | None = None) -> int:
    """What the program returns for a call with one argument."""
    program = filter_program(machine)
    rows = [struct.unpack_from("HBBI", program, offset) for offset in range(0, len(program), 8)]
    data = {0: number, 4: AUDIT[machine] if audit is None else audit, 16: argument}
    accumulator, at = 0, 0
    while True:
        code, yes, no, value = rows[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            accumulator = data[value]
        else:
            true = {
                0x15: accumulator == value,
                0x25: accumulator > value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += yes if true else no


CALLS = {
    "x86_64": {
        "read": 0,
        "openat": 257,
        "execve": 59,
        "fork": 57,
        "clone": 56,
        "socket": 41,
        "personality": 135,
        "setxattr": 188,
        "sync": 162,
        "mount": 165,
        "ptrace": 101,
        "bpf": 321,
        "keyctl": 250,
        "unshare": 272,
        "io_uring_setup": 425,
        "add_key": 248,
        "setns": 308,
        "userfaultfd": 323,
        "perf_event_open": 298,
        "chroot": 161,
        "kexec_load": 246,
        "open_by_handle_at": 304,
        "init_module": 175,
    },
    "aarch64": {
        "read": 63,
        "openat": 56,
        "execve": 221,
        "fork": 220,
        "clone": 220,
        "socket": 198,
        "personality": 92,
        "setxattr": 5,
        "sync": 81,
        "mount": 40,
        "ptrace": 117,
        "bpf": 280,
        "keyctl": 219,
        "unshare": 97,
        "io_uring_setup": 425,
        "add_key": 217,
        "setns": 268,
        "userfaultfd": 282,
        "perf_event_open": 241,
        "chroot": 51,
        "kexec_load": 104,
        "open_by_handle_at": 265,
        "init_module": 105,
    },
}
REFUSED = ("mount", "ptrace", "bpf", "keyctl", "unshare", "io_uring_setup", "add_key", "setns", "userfaultfd")
REFUSED += ("perf_event_open", "chroot", "kexec_load", "open_by_handle_at", "init_module")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_verdicts(machine: str) -> None:
    calls = CALLS[machine]
    for name in ("read", "openat", "execve", "fork"):
        assert verdict(machine, calls[name]) == ALLOW, name
    for name in REFUSED:
        assert verdict(machine, calls[name]) == REFUSE | errno.EPERM, name
    assert verdict(machine, calls["setxattr"]) == REFUSE | errno.EOPNOTSUPP
    assert verdict(machine, calls["sync"]) == REFUSE
    assert verdict(machine, 435) == REFUSE | errno.ENOSYS
    assert verdict(machine, calls["read"], audit=0x40000003) == KILL
    assert verdict(machine, 0x40000000 | calls["read"]) == REFUSE | errno.EPERM


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_arguments_that_decide(machine: str) -> None:
    calls = CALLS[machine]
    for bit in range(32):
        new = 0x7E020000 & (1 << bit)
        assert verdict(machine, calls["clone"], 1 << bit) == (REFUSE | errno.EPERM if new else ALLOW), bit
    assert [family for family in range(64) if verdict(machine, calls["socket"], family) == ALLOW] == [1, 2, 10, 16]
    assert verdict(machine, calls["personality"], 0x0008) == ALLOW
    assert verdict(machine, calls["personality"], 0x40000) == REFUSE | errno.EPERM
