"""A warm run is equal to the same command run cold, in all that the command can observe but its speed."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
from pathlib import Path

import pytest
from refork.envs.swe.sandbox.base import CommandResult, Sandbox, SandboxSpec
from refork.envs.swe.sandbox.warm import module_of, same_start

from tests.envs.swe.sandbox.conftest import make_backend
from tests.envs.swe.sandbox.test_state import sh

PROBE = """
import atexit, json, os, random, resource, signal, sys, threading
def facts():
    return {
        "argv": sys.argv, "path": sys.path, "executable": sys.executable, "prefix": sys.prefix,
        "orig_argv": sys.orig_argv, "name": __name__, "file": __file__, "package": __package__,
        "spec": __spec__.name, "main": sys.modules["__main__"].__dict__ is globals(),
        "flags": repr(sys.flags), "hash": hash("refork"), "environ": dict(os.environ), "cwd": os.getcwd(),
        "umask": os.umask(0o22), "stdin": sys.stdin.read(), "encoding": sys.stdout.encoding,
        "buffering": [sys.stdout.line_buffering, sys.stdout.isatty(), sys.stdout.buffer.raw.seekable()],
        "session": os.getsid(0) == os.getpid() == os.getpgid(0), "parent": os.getppid(),
        "signals": [str(signal.getsignal(s)) for s in range(1, 32)],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "fds": [fd for fd in sorted(map(int, os.listdir("/proc/self/fd"))) if fd < 3],
        "limits": [resource.getrlimit(r) for r in range(16)],
        "threads": threading.active_count(), "main_thread": threading.current_thread().name,
        "refork": [m for m in sys.modules if "refork" in m], "dump": os.access("/proc/self/mem", os.R_OK),
    }
if __name__ == "__main__":
    random.seed(0)
    print(json.dumps(facts()))
    atexit.register(print, "at exit")
"""

ENDS = {
    "falls off": "print('x')",
    "exit code": "import sys; print('x'); sys.exit(3)",
    "exit text": "raise SystemExit('why')",
    "hard exit": "import os; os.write(1, b'x'); os._exit(4)",
    "uncaught": "def f():\n    raise KeyError('k')\nf()",
    "signal": "import os; os.kill(os.getpid(), 9)",
    "interrupt": "raise KeyboardInterrupt",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()",
    "broken": "x = = 1",
    "child": "import os\nif os.fork() == 0:\n    print('child'); raise SystemExit(0)\nos.wait(); print('parent')",
}


def both(sandbox: Sandbox, argv: list[str], **options: object) -> tuple[CommandResult, CommandResult]:
    cold = sandbox.run(argv, **options)  # type: ignore[arg-type]
    warm = sandbox.run(argv, warm=True, **options)  # type: ignore[arg-type]
    return cold, warm


def test_it_sees_what_a_new_interpreter_sees(sandbox: Sandbox) -> None:
    sandbox.put({"/testbed/probe.py": PROBE.encode(), "/testbed/pkg/probe.py": PROBE.encode()})
    for cwd, extra in (("/testbed", {}), ("/testbed/pkg", {"EXTRA": "1"})):
        argv = ["python", "-m", "probe", "a b", "--c"]
        cold, warm = both(sandbox, argv, cwd=cwd, environment=extra)
        assert warm.output.endswith("at exit\n")
        assert json.loads(warm.output.splitlines()[0]) == json.loads(cold.output.splitlines()[0])


def test_signals_are_a_new_interpreters_under_nohup_too(tmp_path: Path, spec: SandboxSpec) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        backend = make_backend("overlay", tmp_path)
        with backend.open(spec) as sandbox:
            sandbox.put({"/testbed/hup.py": b"import signal; print(signal.getsignal(signal.SIGHUP).name)"})
            assert [r.output for r in both(sandbox, ["python", "-m", "hup"])] == ["SIG_DFL\n", "SIG_DFL\n"]
        backend.close()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("source", ENDS.values(), ids=list(ENDS))
def test_it_ends_as_a_new_interpreter_ends(sandbox: Sandbox, source: str) -> None:
    sandbox.put({"/testbed/ends.py": source.encode()})
    cold, warm = both(sandbox, ["python", "-m", "ends"])
    assert (warm.exit_code, warm.killed_by) == (cold.exit_code, cold.killed_by)
    assert warm.output == cold.output


def _without_times(text: str) -> str:
    return re.sub(r"in \d+\.\d+s", "in TIME", text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-q"], "1 failed, 1 passed"),
        (["-v", "--tb=short", "test_it.py::test_it"], "1 passed"),
        (["nothing.py"], "file or directory not found: nothing.py"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
)
def test_pytest_reports_the_same(sandbox: Sandbox, arguments: list[str], said: str) -> None:
    cold, warm = both(sandbox, ["python", "-m", "pytest", "-p", "no:cacheprovider", *arguments])
    assert warm.exit_code == cold.exit_code
    assert _without_times(warm.output) == _without_times(cold.output)
    assert said in warm.output


def test_edits_of_equal_size_within_a_second_run_the_new_code(sandbox: Sandbox) -> None:
    for value in range(6):
        code = f"from pkg.a import A\n\ndef test_value():\n    assert A == {value}\n"
        sandbox.put({"/testbed/pkg/a.py": f"A = {value}\n".encode(), "/testbed/test_value.py": code.encode()})
        result = sandbox.run(["python", "-m", "pytest", "-q", "test_value.py"], warm=True)
        assert result.exit_code == 0, result
        assert "/testbed/pkg/__pycache__" not in sandbox.changes


def test_limits_hold_and_runs_do_not_see_each_other(sandbox: Sandbox) -> None:
    sandbox.put(
        {"/testbed/loop.py": b"import time\ntime.sleep(100)", "/testbed/leak.py": b"import sys; sys.path.append('L')"}
    )
    limits = dataclasses.replace(sandbox.spec.limits, wall_s=0.5)
    assert sandbox.run(["python", "-m", "loop"], warm=True, limits=limits).killed_by == "wall"
    assert sandbox.run(["python", "-m", "leak"], warm=True).exit_code == 0
    sandbox.put({"/testbed/see.py": b"import sys; print('L' in sys.path, 'leak' in sys.modules)"})
    assert sandbox.run(["python", "-m", "see"], warm=True).output == "False False\n"
    assert int(sh(sandbox, "set -- /proc/[0-9]*; echo $#")) <= 3


def test_what_the_preloaded_interpreter_cannot_stand_for_runs_cold(sandbox: Sandbox) -> None:
    sandbox.put({"/testbed/seed.py": b"import sys; print(sys.flags.hash_randomization)"})
    argv = ["python", "-m", "seed"]
    assert sandbox.run(argv, warm=True).output == "0\n"
    assert sandbox.run(argv, warm=True, environment={"PYTHONHASHSEED": "random"}).output == "1\n"
    assert sandbox.run(["sh", "-c", "echo shell"], warm=True).output == "shell\n"


def test_which_commands_can_be_warm() -> None:
    assert module_of(["python", "-m", "pytest", "-q"]) == "pytest"
    assert module_of(["python", "-W", "error", "-m", "pytest"]) is None
    assert module_of(["python3", "-c", "1"]) is None
    assert same_start({"PATH": "a", "PYTHONPATH": "x"}, {"PATH": "b", "PYTHONPATH": "x"})
    assert not same_start({"PYTHONPATH": "x", "LD_PRELOAD": "l"}, {"PYTHONPATH": "x"})


def test_a_module_cannot_report_on_itself(sandbox: Sandbox) -> None:
    script = (
        b"import os\n"
        b"for number in range(3, 100):\n"
        b'    try: os.write(number, b\'{"status": 0, "cpu_s": 0.0}\')\n'
        b"    except OSError: pass\n"
        b"os._exit(3)\n"
    )
    sandbox.put({"/testbed/liar.py": script})
    assert sandbox.run(["python", "-m", "liar"], warm=True).exit_code == 3
