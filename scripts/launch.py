"""`refork launch`: sends a job to a Ray cluster's job server, and watches it there. Ray is imported when it is needed.

A job that is followed and a job that is not are the same: what is followed can be left, and found again by its id.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from refork.envs.forkable import BadInput, InfraFailure

if TYPE_CHECKING:
    from ray.job_submission import JobDetails
    from refork.cluster.launch_server import JobServer

Address = Annotated[str, Parameter(env_var=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"], show_default=False)]
Flag = Annotated[bool, Parameter(negative="")]


def launch(
    job: str,
    /,
    *overrides: Annotated[str, Parameter(allow_leading_hyphen=True, show_default=False)],
    address: Address = "",
    resume: Flag = False,
    detach: Flag = False,
) -> int:
    """Run a job on a Ray cluster: checked here and there first, then sent with this refork, and its log followed.

    Ctrl+C stops following, not the job. The exit code is the job's.

    Parameters
    ----------
    job
        A TOML file, or the name of a shipped recipe.
    overrides
        Keys of the job laid over it: --section.key value.
    address
        The cluster's job server: http://127.0.0.1:8265. Its token: RAY_AUTH_TOKEN_PATH.
    resume
        Go on from the newest committed checkpoint of the newest run of that name in the cluster's `runs`.
    detach
        Send it and leave.
    """
    from refork.cluster.launch_job import on_cluster, outside_paths
    from refork.scripts.job import read_job

    config = on_cluster(read_job(job, overrides))
    for key, path in outside_paths(config).items():
        print(f"{key}: {path}; it must be there on every node", file=sys.stderr)

    from refork.cluster.launch_server import JobServer

    server = JobServer.open(address)
    server.check_room(config)
    submission = server.submit(config, resume)
    print(f"launched: {submission}")
    if detach:
        return _later(submission)
    return _follow(server, submission)


def status(
    submission: str = "",
    /,
    *,
    all_: Annotated[bool, Parameter("--all", negative="")] = False,
    address: Address = "",
) -> int:
    """Show how a job is, or all of them.

    Parameters
    ----------
    submission
        What `refork launch` printed.
    all_
        Every job that the cluster knows, the newest last.
    address
        The cluster's job server.
    """
    from refork.cluster.launch_server import JobServer

    if bool(submission) == all_:
        raise BadInput("give the id of one job, or --all: refork launch status ID")
    server = JobServer.open(address)
    for job in [server.details(submission)] if submission else server.jobs():
        print(_line(job))
    return 0


def logs(submission: str, /, *, follow: Flag = False, address: Address = "") -> int:
    """Show what a job has printed.

    Parameters
    ----------
    submission
        What `refork launch` printed.
    follow
        Until its end; the exit code is then the job's. Ctrl+C stops following, not the job.
    address
        The cluster's job server.
    """
    from refork.cluster.launch_server import JobServer

    server = JobServer.open(address)
    server.details(submission)
    if follow:
        return _follow(server, submission)
    print(server.log(submission), end="")
    return 0


def stop(submission: str, /, *, address: Address = "") -> int:
    """End a job as Ctrl+C would: it commits a checkpoint first, from which --resume goes on.

    Parameters
    ----------
    submission
        What `refork launch` printed.
    address
        The cluster's job server.
    """
    from refork.cluster.launch_server import JobServer

    print(f"{submission}: {JobServer.open(address).stop(submission)}")
    return 0


def _follow(server: JobServer, submission: str) -> int:
    """The log until the end, then the job's exit code."""
    from refork.cluster.launch_server import exit_code

    print("following; Ctrl+C leaves it running", file=sys.stderr)
    try:
        for part in server.follow(submission):
            print(part, end="", flush=True)
        job = server.end(submission)
    except (KeyboardInterrupt, InfraFailure):
        _later(submission)
        raise
    return exit_code(job)


def _later(submission: str) -> int:
    """How to come back to it."""
    print(
        f"it runs on: refork launch logs {submission} --follow, or end it: refork launch stop {submission}",
        file=sys.stderr,
    )
    return 0


def _line(job: JobDetails) -> str:
    """Id, status, start (this machine's time), name; of one that failed, why."""
    from refork.cluster.launch_server import reason

    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime((job.start_time or 0) / 1000))
    parts = (job.submission_id or "-", job.status.value, began, (job.metadata or {}).get("job", "-"))
    return "  ".join(parts) + (f"  {reason(job)}" if job.status == "FAILED" else "")
