"""Conformance of isolation: what a hostile command must not see, reach, gain or leave behind."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from refork.envs.swe.sandbox.base import Sandbox

from tests.envs.swe.sandbox.test_state import sh

CALL = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, *arguments):
    result = getattr(libc, name)(*arguments)
    print(name, errno.errorcode.get(ctypes.get_errno()) if result == -1 else result)
"""


def python(sandbox: Sandbox, script: str) -> str:
    result = sandbox.run(["python", "-c", script])
    assert result.exit_code == 0, result
    return result.output


def test_who_a_command_is(sandbox: Sandbox) -> None:
    status = dict(line.split(":\t", 1) for line in sh(sandbox, "cat /proc/self/status").splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Uid"] == status["Gid"] == "1000\t1000\t1000\t1000"
    assert sh(sandbox, "hostname") != socket.gethostname()


def test_the_system_is_read_only(sandbox: Sandbox) -> None:
    for folder in (
        "/",
        "/usr",
        "/usr/bin",
        "/etc",
        "/opt",
        "/opt/env",
        "/opt/python",
        "/var",
        "/run",
        "/dev",
        "/home",
        "/root",
    ):
        assert sandbox.run(["touch", f"{folder}/refork"]).exit_code != 0, folder
    assert sandbox.run(["sh", "-c", "echo x > /proc/sys/kernel/hostname"]).exit_code != 0
    assert sandbox.run(["sh", "-c", "echo x >> /etc/passwd"]).exit_code != 0
    writable = sh(
        sandbox, "find / -xdev -writable -not -type l -not -path '/proc/*' -not -path '/dev/*' 2>/dev/null || true"
    )
    assert [p for p in writable.splitlines() if not p.startswith(("/testbed", "/tmp"))] == []


def test_nothing_of_the_host_is_in_sight(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for path in (
        secret,
        Path.home() / ".bashrc",
        Path(__file__),
        Path("/var/run/docker.sock"),
        Path("/run/docker.sock"),
    ):
        assert sandbox.run(["test", "-e", str(path)]).exit_code == 1, path
    assert sandbox.run(["sh", "-c", "cat /etc/shadow"]).exit_code != 0
    environment = dict(os.environ)
    os.environ["REFORK_SECRET"] = "secret"
    try:
        assert "REFORK_SECRET" not in sh(sandbox, "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' || true")
    finally:
        os.environ.clear()
        os.environ.update(environment)
    assert "refork" not in sh(sandbox, "cat /proc/self/cgroup; ls -l /proc/[0-9]*/fd 2>/dev/null || true")


def test_only_its_own_processes(sandbox: Sandbox) -> None:
    assert os.getpid() > 30
    seen = sh(sandbox, "ls -d /proc/[0-9]*").split()
    assert "/proc/1" in seen
    assert len(seen) <= 4
    assert (
        sandbox.run(["sh", "-c", "ls -l /proc/1/root/ || cat /proc/1/environ || echo x > /proc/1/mem"]).exit_code != 0
    )
    assert python(sandbox, "import os\ntry: os.kill(1, 9)\nexcept OSError: pass\nprint('alive')") == "alive\n"
    assert sandbox.run(["sh", "-c", "kill -9 -1; sleep 0.1; echo alive"]).exit_code in (0, -9)
    assert sh(sandbox, "echo still here") == "still here\n"


def test_no_network_but_its_own_loopback(sandbox: Sandbox) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        script = f"import socket\nfor host in ('127.0.0.1', '1.1.1.1'):\n    s = socket.socket(); s.settimeout(2)\n    print(s.connect_ex((host, {port} if host[1] == '2' else 53)) != 0)"  # noqa: E501
        assert python(sandbox, script) == "True\nTrue\n"
    assert python(
        sandbox,
        "import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())\n"
        "c.sendall(b'hello'); print(s.accept()[0].recv(9), [n for _, n in socket.if_nameindex()])",
    ).startswith("b'hello' ['lo'")


def test_sandboxes_do_not_meet_through_abstract_sockets(sandbox: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0refork-meeting")
        server.listen()
        script = "import socket; print(socket.socket(socket.AF_UNIX).connect_ex('\\0refork-meeting') != 0)"
        assert python(sandbox, script) == "True\n"


@pytest.mark.parametrize(
    "call",
    [
        'attempt("mount", b"none", b"/tmp", b"tmpfs", 0, None)',
        'attempt("umount2", b"/testbed", 2)',
        'attempt("unshare", 0x10000000)',
        'attempt("unshare", 0x20000)',
        'attempt("setns", 0, 0)',
        'attempt("chroot", b"/tmp")',
        'attempt("ptrace", 16, os.getppid(), 0, 0)',
        'attempt("syscall", 425, 8, 0)',
        'attempt("process_vm_readv", 1, 0, 0, 0, 0, 0)',
        'attempt("pivot_root", b"/", b"/") if hasattr(libc, "pivot_root") else attempt("syscall", 155, b"/", b"/")',
        'attempt("reboot", 0)',
        'attempt("sethostname", b"x", 1)',
        'attempt("swapon", b"/tmp", 0)',
        'attempt("clock_settime", 0, bytes(16))',
        'attempt("klogctl", 3, None, 0)',
        'attempt("personality", 0x0040000)',
        'attempt("mknod", b"/tmp/disk", 0o60644, 0x0800)',
        'attempt("mknod", b"/testbed/README2", 0o20644, 0)',
    ],
)
def test_ways_out_are_refused(sandbox: Sandbox, call: str) -> None:
    assert python(sandbox, CALL + call).split()[1] in ("EPERM", "EACCES", "ENOSYS"), call


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize(
    "number", [248, 249, 250, 298, 321, 323, 425, 426, 428, 429, 430, 432, 435, 438, 447, 0x40000000]
)
def test_kernel_surface_is_closed(sandbox: Sandbox, number: int) -> None:
    script = CALL + f'attempt("syscall", {number}, 0, 0, 0, 0, 0)'
    assert python(sandbox, script).split()[1] in ("EPERM", "ENOSYS")


def test_new_namespaces_by_clone_are_refused_and_threads_are_not(sandbox: Sandbox) -> None:
    clone = 'attempt("syscall", 56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0)\n'
    thread = 'import threading\nt = threading.Thread(target=print, args=("ok",)); t.start(); t.join()'
    assert python(sandbox, CALL + clone + thread) == "syscall EPERM\nok\n"


def test_odd_socket_families_are_refused(sandbox: Sandbox) -> None:
    script = "import socket\nfor family in (17, 38, 40, 44, 16, 1, 2, 10):\n    try:\n        socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_DGRAM).close(); print(family)\n    except OSError: pass"  # noqa: E501
    assert python(sandbox, script) == "16\n1\n2\n10\n"


def test_set_id_programs_give_nothing(sandbox: Sandbox) -> None:
    sh(sandbox, "cp /usr/bin/id ./id; chmod 6755 id; ./id -u | grep -qx 1000")
    found = sh(sandbox, "find /usr/bin /usr/sbin -xdev -perm -4000 -type f 2>/dev/null | head -5 || true").split()
    for path in found:
        assert "uid=0" not in sandbox.run([path, "-c", "id"]).output
    assert sandbox.run(["python", "-c", "import os; os.setuid(0)"]).exit_code != 0


def test_no_attributes_and_no_ownership(sandbox: Sandbox) -> None:
    script = "import os\nfor f in (lambda: os.setxattr('README', 'user.x', b'1'), lambda: os.chown('README', 0, 0)):\n    try: f(); print('done')\n    except OSError as e: print(e.errno in (1, 22, 95))"  # noqa: E501
    assert python(sandbox, script) == "True\nTrue\n"


def test_devices(sandbox: Sandbox) -> None:
    assert set(sh(sandbox, "ls /dev").split()) >= {"null", "zero", "full", "random", "urandom", "shm", "fd"}
    assert sandbox.run(["sh", "-c", "ls /dev | grep -E 'sd|vd|nvme|mem|kvm|fuse|loop'"]).exit_code == 1
    assert sh(sandbox, "head -c 3 /dev/zero | wc -c; echo x > /dev/null; head -c 5 /dev/urandom | wc -c") == "3\n5\n"
