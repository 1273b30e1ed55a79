"""Conformance of single commands: exit codes, environment, output, limits; nothing of a command outlives it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

import pytest
from refork.envs.swe.sandbox.base import DEFAULT_ENVIRONMENT, Limits, Sandbox

from tests.envs.swe.sandbox.test_state import sh


def limits(sandbox: Sandbox, **changed: float) -> Limits:
    return dataclasses.replace(sandbox.spec.limits, **changed)  # type: ignore[arg-type]


def processes(sandbox: Sandbox) -> int:
    """Processes that a new command sees, itself and what supervises it included."""
    return int(sh(sandbox, "set -- /proc/[0-9]*; echo $#"))


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], -9),
        (["sh", "-c", "kill -TERM $$"], -15),
        (["python", "-c", "import os; os._exit(255)"], 255),
        (["no-such-command"], 127),
        (["/testbed/README"], 126),
        (["/testbed"], 126),
    ],
)
def test_exit_codes(sandbox: Sandbox, argv: list[str], code: int) -> None:
    result = sandbox.run(argv)
    assert (result.exit_code, result.killed_by) == (code, None)


def test_cwd_environment_and_their_errors(sandbox: Sandbox) -> None:
    environment = {"X": "with space\n", "TZ": "CET"}
    result = sandbox.run(["env", "-0"], cwd="/testbed/pkg", environment=environment)
    seen = dict(item.split("=", 1) for item in result.output.rstrip("\0").split("\0"))
    assert seen == {**DEFAULT_ENVIRONMENT, **environment}
    assert sandbox.run(["pwd"], cwd="/testbed/pkg").output == "/testbed/pkg\n"
    assert sandbox.run(["pwd"], cwd="/tmp").output == "/tmp\n"
    assert sandbox.run(["pwd"], cwd="/testbed/nowhere").exit_code == 127
    assert sandbox.run(["sh", "-c", "umask; ulimit -c"]).output == "0022\n0\n"
    for bad in ([], ["a\0b"]):
        with pytest.raises(ValueError, match="NUL"):
            sandbox.run(bad)


def test_a_command_leads_its_own_session_and_reads_nothing(sandbox: Sandbox) -> None:
    script = "import os; print(os.getsid(0) == os.getpid(), repr(os.read(0, 9)), sorted(os.listdir('/proc/self/fd')))"
    assert sandbox.run(["python", "-c", script]).output == "True b'' ['0', '1', '2', '3']\n"
    for argv in (["cat"], ["python", "-c", "input()"], ["sh", "-c", "read x || echo none"]):
        assert sandbox.run(argv, limits=limits(sandbox, wall_s=10)).killed_by is None


def test_output_keeps_the_order_and_replaces_what_is_not_utf8(sandbox: Sandbox) -> None:
    script = (
        r"import os; os.write(1, b'a\xfe'); os.write(2, b'b\x00'); os.write(1, 'c€'.encode()); os.write(2, b'\xe2\x82')"
    )
    assert sandbox.run(["python", "-c", script]).output == "a\ufffdb\0c€\ufffd"


def test_a_character_across_writes_and_reads_stays_whole(sandbox: Sandbox) -> None:
    script = "import os, time\nfor b in 'ä€😀'.encode():\n    os.write(1, bytes([b])); time.sleep(0.01)"
    assert sandbox.run(["python", "-c", script]).output == "ä€😀"
    many = sandbox.run(["python", "-c", "print('€' * 20000, end='')"])
    assert (many.output, many.omitted_bytes) == ("€" * 20000, 0)


def test_a_cut_splits_no_character_and_its_count_is_exact(sandbox: Sandbox) -> None:
    result = sandbox.run(["python", "-c", "print('€' * 100000, end='')"], limits=limits(sandbox, output_bytes=1000))
    head, tail = 500 // 3, 500 // 3
    assert result.omitted_bytes == 300_000 - 3 * (head + tail)
    assert result.output == f"{'€' * head}\n[{result.omitted_bytes} bytes left out]\n{'€' * tail}"


def test_random_bytes_and_nul(sandbox: Sandbox) -> None:
    result = sandbox.run(["head", "-c", "1000000", "/dev/urandom"])
    assert result.exit_code == 0
    assert 1_000_000 - 65_536 <= result.omitted_bytes <= 1_000_000 - 65_536 + 8
    zeros = sandbox.run(["head", "-c", "50000000", "/dev/zero"])
    assert zeros.omitted_bytes == 50_000_000 - 65_536
    assert zeros.output.count("\0") == 65_536


def test_a_flood_is_stopped(sandbox: Sandbox) -> None:
    result = sandbox.run(["yes"], limits=limits(sandbox, wall_s=30))
    assert (result.exit_code, result.killed_by) == (None, "output")
    assert result.omitted_bytes > 255 << 20  # what is kept is not omitted
    assert len(result.output) < 70_000
    assert processes(sandbox) <= 4


@pytest.mark.parametrize(
    "script",
    [
        "sleep 1000",
        "setsid sleep 1000",
        "setsid sh -c 'trap \"\" TERM INT HUP; while :; do sleep 1; done' & sleep 1000",
        "(nohup setsid sleep 1000 >/dev/null 2>&1 &) ; sleep 1000",
    ],
)
def test_a_timeout_leaves_nothing_running(sandbox: Sandbox, script: str) -> None:
    before = processes(sandbox)
    result = sandbox.run(["sh", "-c", script], limits=limits(sandbox, wall_s=0.4))
    assert (result.exit_code, result.killed_by) == (None, "wall")
    assert 0.4 <= result.wall_s < 3
    assert processes(sandbox) == before


def test_what_was_written_before_a_timeout_stays(sandbox: Sandbox) -> None:
    sandbox.run(["sh", "-c", "echo 1 > a; echo out; sleep 1000"], limits=limits(sandbox, wall_s=0.5))
    assert set(sandbox.changes) == {"/testbed/a"}


def test_background_processes_end_with_their_command(sandbox: Sandbox) -> None:
    before = processes(sandbox)
    started = time.monotonic()
    result = sandbox.run(["sh", "-c", "setsid sleep 1000 & (sleep 1000 &) ; echo done"])
    assert (result.exit_code, result.output) == (0, "done\n")
    assert time.monotonic() - started < 5
    assert processes(sandbox) == before
    sandbox.run(["sh", "-c", "(sleep 0.3; echo late > late) & exit 0"])
    time.sleep(0.5)
    assert dict(sandbox.changes) == {}


def test_orphaned_grandchildren_leave_no_zombies(sandbox: Sandbox) -> None:
    script = (
        "import os, time\n"
        "for _ in range(200):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0:\n"
        "            os._exit(0)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "time.sleep(0.5)\n"
        "print(sum('\\nState:\\tZ' in open(f'/proc/{p}/status').read() for p in os.listdir('/proc') if p.isdigit()))"
    )
    result = sandbox.run(["python", "-c", script])
    assert (result.exit_code, result.output) == (0, "0\n")


FORKS = "import os, time\nn = 0\ntry:\n    while n < 200:\n        if os.fork() == 0:\n            time.sleep(9)\n        n += 1\nexcept OSError as error:\n    print(n, error.strerror)\n"  # noqa: E501


@pytest.mark.parametrize(
    ("argv", "changed", "killed", "code", "output"),
    [
        (["python", "-c", "len(bytearray(400 << 20))"], {"memory_mb": 128}, "memory", None, None),
        (["python", "-c", "while True: pass"], {"cpu_s": 1}, "cpu", None, None),
        (["python", "-c", "print(len(bytearray(64 << 20)))"], {"memory_mb": 256}, None, 0, "67108864\n"),
        (["head", "-c", "3000000", "/dev/zero"], {"output_bytes": 10}, None, 0, None),
    ],
    ids=["memory", "cpu", "enough memory", "little output"],
)
def test_limits(
    sandbox: Sandbox, argv: list[str], changed: Mapping[str, float], killed: str, code: int, output: str
) -> None:
    result = sandbox.run(argv, limits=limits(sandbox, **changed))
    assert (result.exit_code, result.killed_by) == (code, killed), result
    assert output is None or result.output == output


def test_the_limit_on_processes_is_exact_and_holds_for_threads_too(sandbox: Sandbox) -> None:
    result = sandbox.run(["python", "-c", FORKS], limits=limits(sandbox, processes=20))
    assert result.output == "19 Resource temporarily unavailable\n"
    threads = "import threading, time\n" + FORKS.replace(
        "if os.fork() == 0:\n            time.sleep(9)",
        "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    ).replace("except OSError as error:\n    print(n, error.strerror)", "except RuntimeError:\n    print(n)")
    assert sandbox.run(["python", "-c", threads], limits=limits(sandbox, processes=20)).output == "19\n"


def test_the_largest_file(sandbox: Sandbox) -> None:
    result = sandbox.run(["sh", "-c", "head -c 3000000 /dev/zero > f; stat -c %s f"], limits=limits(sandbox, file_mb=1))
    assert result.output.splitlines()[-1] == str(1 << 20)
    sparse = sandbox.run(["truncate", "-s", "2M", "g"], limits=limits(sandbox, file_mb=1))
    assert sparse.exit_code != 0
    assert "/testbed/g" not in sandbox.changes or sandbox.get("/testbed/g") == b""


@pytest.mark.parametrize(
    "script",
    [
        "for i in 1 2 3 4 5 6 7 8; do head -c 900000 /dev/zero > f$i; done",
        "for i in 1 2 3 4 5 6 7 8; do truncate -s 900000 /tmp/f$i; done",
        "mkdir d; cd d; for i in $(seq 2000); do : > $i; done",
        "for i in 1 2 3 4 5 6 7 8; do head -c 900000 /dev/zero > f$i; done; sleep 1000",
    ],
    ids=["full", "sparse", "many", "still running"],
)
def test_a_disk_that_is_full_puts_the_sandbox_back_to_its_base(sandbox: Sandbox, script: str) -> None:
    sh(sandbox, "echo mine > mine")
    result = sandbox.run(["sh", "-c", script], limits=limits(sandbox, disk_mb=5, wall_s=20))
    assert (result.exit_code, result.killed_by) == (None, "disk")
    assert dict(sandbox.changes) == {}
    assert sh(sandbox, "ls") == "README\nempty\nlink\npkg\nrun.sh\ntest_it.py\n"


def test_the_disk_limit_counts_what_is_frozen_and_not_what_is_gone(sandbox: Sandbox) -> None:
    four = limits(sandbox, disk_mb=4)
    for number in range(6):
        assert sandbox.run(["sh", "-c", "head -c 1500000 /dev/urandom > same"], limits=four).killed_by is None, number
        sandbox.snapshot()
    assert sandbox.run(["sh", "-c", "head -c 1500000 /dev/zero > second"], limits=four).killed_by is None
    sandbox.snapshot()
    assert sandbox.run(["sh", "-c", "head -c 1500000 /dev/zero > third"], limits=four).killed_by == "disk"


def test_a_tree_too_deep_for_the_host_is_a_disk_that_is_full(sandbox: Sandbox) -> None:
    script = "import os\nfor _ in range(60):\n    os.mkdir('d' * 200); os.chdir('d' * 200)"
    assert sandbox.run(["python", "-c", script]).killed_by == "disk"
    assert dict(sandbox.changes) == {}


def test_a_tree_as_deep_as_paths_go(sandbox: Sandbox) -> None:
    sh(sandbox, "mkdir -p $(printf 'd/%.0s' $(seq 400)); chmod 0 d/d")
    assert len(sandbox.changes) == 400
    ref = sandbox.snapshot()
    sh(sandbox, "chmod 700 d/d; rm -r d")
    sandbox.restore(ref)
    assert sandbox.changes["/testbed/d/d"].mode == 0


def test_tmp_is_kept_and_shared_memory_is_not(sandbox: Sandbox) -> None:
    sh(sandbox, "echo t > /tmp/t; echo s > /dev/shm/s")
    assert sh(sandbox, "cat /tmp/t; ls /dev/shm") == "t\n"
    assert sandbox.run(["python", "-c", "import multiprocessing; multiprocessing.Lock()"]).exit_code == 0
