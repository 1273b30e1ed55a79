"""The `refork` command. Commands are imported when they are called, so that `--help` needs neither torch nor ray."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib.metadata import version
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError, UnknownOptionError
from refork.envs.forkable import BadInput, InfraFailure
from refork.envs.swe.sandbox.base import UnsupportedHost
from refork.scripts.launch import launch as launch_job

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

app = App(
    name="refork",
    help="Train agents by going back: restore a state, take another action, play on, learn from the difference.",
    version=lambda: version("refork"),
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
app.command("refork.scripts.train:train", help="Train as a job file says.")
app.command(
    "refork.scripts.evaluate:evaluate",
    help="Judge a checkpoint and what it has to beat on unseen tasks or games, or on a log's unseen patients: values "
    "estimated off-policy with what they rest on, beside the true ones in simulators; pictures are drawn.",
)
app.command("refork.scripts.fork:fork", help="Go back to a decision of a recorded rollout and play alternatives.")
app.command("refork.scripts.sync:sync", help="Upload to W&B what runs recorded offline.")
app.command("refork.scripts.clean:clean", help="Remove what runs that no longer live have left behind.")
app.command("refork.scripts.doctor:doctor", help="Show what works on this machine, and what to do about the rest.")

tasks = App(name="tasks", help="Build, check and list software-engineering tasks from released packages.")
tasks.command("refork.scripts.tasks:build", help="Make the task set from the recipes.")
tasks.command("refork.scripts.tasks:check", help="Audit a task set again.")
tasks.command("refork.scripts.tasks:list_", name="list", help="Show what is in a task set.")
app.command(tasks)

launch = App(
    name="launch",
    help="Run a job on a Ray cluster and follow its log: checked first, sent with this "
    "refork. Ctrl+C stops following, not the job; the exit code is the job's.",
)
launch.default(launch_job)
launch.command("refork.scripts.launch:status", help="Show how a launched job is.")
launch.command("refork.scripts.launch:logs", help="Show what a launched job has printed.")
launch.command("refork.scripts.launch:stop", help="End a launched job; it commits a checkpoint first.")
app.command(launch)

data = App(name="data", help="Check, convert and collect logs of decisions.")
data.command("refork.scripts.data:check", help="Read a log of any format: its data card, or the exact fault.")
data.command("refork.scripts.data:convert", help="Convert a log of any format to another.")
data.command("refork.scripts.data:collect", help="Write a log of a simulator's episodes.")
data.command("refork.scripts.data:cohort", help="Write a synthetic cohort table and its schema.")
app.command(data)


def command() -> NoReturn:
    """The installed `refork`: as `main`, and what Ray's native threads do at the very end cannot cost the exit code.

    They outlive `ray.shutdown` and now and then crash while the interpreter is torn down, so after Ray it is not: the
    process ends as one of `multiprocessing` does, with threads joined, exit functions run and output written.
    """
    code = main()
    if "ray" not in sys.modules:
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(BrokenPipeError):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of `refork`."""
    return run_app(app, arguments)


def run_app(app: App, arguments: Sequence[str] | None = None) -> int:
    """Run one command of an app; the one place where known exceptions become a one-line message and an exit code.

    2: bad input or an unsupported host; 1: the run failed; 130: interrupted. Anything else is a bug and keeps its
    traceback.
    """
    signal.signal(signal.SIGTERM, _terminate)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy and torch: default threads cost several times more
    try:
        code = app(sys.argv[1:] if arguments is None else arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _say(f"{error}{_hint(error)}", BAD_INPUT)
    except (BadInput, UnsupportedHost) as error:
        return _say(str(error), BAD_INPUT)
    except InfraFailure as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def _hint(error: CycloptsError) -> str:
    if isinstance(error, UnknownOptionError) and error.command_chain and error.command_chain[0] in ("train", "launch"):
        return f" Keys of the job are given after the job file: refork {error.command_chain[0]} JOB.toml --seed 3"
    return ""


def _say(message: str, code: int) -> int:
    print(f"refork: {message}", file=sys.stderr)
    return code


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM ends a run as Ctrl+C does: with everything cleaned and the run resumable."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    command()
