"""A cluster's job server (Ray Jobs, beside the dashboard on the head): what is sent to it and read from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from refork.cluster.launch_address import check_address, check_guarded, check_versions, refused
from refork.cluster.launch_job import write_folder
from refork.cluster.launch_wheel import build_wheel
from refork.cluster.local_ray import ray
from refork.cluster.resources import check_cluster, need_of
from refork.envs.forkable import BadInput, InfraFailure
from refork.trainers.config import JobConfig

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
STOP_S = 60
"""Seconds that a job has for its last checkpoint when it is stopped; Ray's own default is 3."""
_SETTLE_S = 30.0
"""Seconds after the end of a log in which the job must be known to have ended."""
_TRIES = 10
"""Times in a row that a lost log is looked for again, a second apart."""
_BAD_INPUT, _INTERRUPTED = 2, 130
"""Exit codes of ours; the second also for a job that was stopped."""
_TALKATIVE = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""Loggers that report every upload on the screen."""
_ADDRESS_VARIABLES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")


@dataclass
class JobServer:
    """One that answers, takes our token, and runs our versions."""

    address: str
    client: Any

    @classmethod
    def open(cls, address: str) -> Self:
        """`address`: http(s)://HOST:PORT. Raises BadInput with what to do."""
        check_address(address)
        check_guarded(address)
        for variable in _ADDRESS_VARIABLES:  # else Ray would take them before the address it is given
            os.environ.pop(variable, None)
        try:
            server = cls(address, _client(address))
            metadata = server.client._do_request("GET", "/api/v0/cluster_metadata").json()["data"]
        except ray.exceptions.AuthenticationError as error:
            raise refused(address, str(error).splitlines()[0]) from error
        check_versions({k: metadata.get(k) or metadata[_camel(k)] for k in ("ray_version", "python_version")}, address)
        return server

    def check_room(self, job: JobConfig) -> None:
        """Raises BadInput when the living nodes have no room for the job."""
        from ray.util.state import list_nodes

        with self._answered():
            nodes = list_nodes(self.address, filters=[("state", "=", "ALIVE")], limit=10_000)
        check_cluster(need_of(job), [node.resources_total or {} for node in nodes], self.address)

    def submit(self, job: JobConfig, resume: bool = False) -> str:
        """Send the job and this refork; returns the job's id. Raises InfraFailure."""
        with tempfile.TemporaryDirectory(prefix="refork-launch-") as scratch:
            folder, wheel = Path(scratch) / "job", build_wheel(Path(scratch))
            write_folder(job, folder)
            environment = {
                "working_dir": str(folder),
                "py_modules": [str(wheel)],
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_S)},
            }
            command = "exec python -m refork.scripts.cli train job.toml" + " --resume" * resume
            about = {"job": job.name, "refork": version("refork")}
            with self._answered():
                return str(self.client.submit_job(entrypoint=command, runtime_env=environment, metadata=about))

    def details(self, submission: str) -> Any:
        """What Ray knows of a job. Raises BadInput when there is no such job."""
        try:
            with self._answered():
                return self.client.get_job_info(submission)
        except InfraFailure as error:
            if "status code 404" not in str(error):
                raise
            hint = "`refork launch status --all` lists those there are"
            raise BadInput(f"{submission}: no such job on {self.address}; {hint}") from error

    def jobs(self) -> list[Any]:
        """All that were submitted, the newest last."""
        with self._answered():
            found = [job for job in self.client.list_jobs() if job.submission_id]
        return sorted(found, key=lambda job: job.start_time or 0)

    def log(self, submission: str) -> str:
        """All that the job has printed."""
        with self._answered():
            return str(self.client.get_job_logs(submission))

    def follow(self, submission: str) -> Iterator[str]:
        """Pieces of its log as they come, until its end; a connection that is lost is made again. Raises
        InfraFailure when that fails."""
        seen = lost = 0
        while True:
            at = 0
            try:
                for part in self._pieces(submission):
                    new, at = part[max(seen - at, 0) :], at + len(part)
                    if new:
                        seen, lost = at, 0
                        yield new
                if self.details(submission).status in ENDED:
                    return
            except InfraFailure:
                lost += 1
                if lost == _TRIES:
                    raise
            time.sleep(1)

    def _pieces(self, submission: str) -> Iterator[str]:
        """Its log from the beginning, as far as the connection holds."""
        import aiohttp

        tail = self.client.tail_job_logs(submission)

        async def following() -> str | None:
            return await anext(tail, None)

        try:
            with asyncio.Runner() as runner:
                while (part := runner.run(following())) is not None:
                    yield part
        except (aiohttp.ClientError, RuntimeError, OSError) as error:
            raise InfraFailure(f"{self.address}: the log of {submission} was lost: {error}") from error

    def stop(self, submission: str) -> str:
        """End it and wait until it has ended; returns its status. Raises InfraFailure when it does not end."""
        if self.details(submission).status not in ENDED:
            with self._answered():
                self.client.stop_job(submission)
        return str(self._ended(submission, STOP_S + _SETTLE_S).status.value)

    def end(self, submission: str) -> Any:
        """What is known of a job whose log has ended. Raises InfraFailure when it goes on."""
        return self._ended(submission, _SETTLE_S)

    def _ended(self, submission: str, seconds: float) -> Any:
        deadline = time.monotonic() + seconds
        while (job := self.details(submission)).status not in ENDED:
            if time.monotonic() > deadline:
                raise InfraFailure(f"{submission}: still {job.status.value} after {seconds:g} s")
            time.sleep(0.2)
        return job

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        """What may go wrong in a request, as InfraFailure."""
        try:
            yield
        except (RuntimeError, OSError, ray.exceptions.RayError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise InfraFailure(f"{self.address}: {lines[0]}") from error


def exit_code(job: Any) -> int:
    """Of one that has ended. Raises InfraFailure when it never began, or ended without a word of ours."""
    if job.status == "STOPPED":
        return _INTERRUPTED
    code = job.driver_exit_code
    if job.status == "FAILED" and code is None:
        raise InfraFailure(f"{job.submission_id}: {reason(job)}")
    code = int(code or 0)
    number = -code if code < 0 else code - 128 if code > 128 and code != _INTERRUPTED else 0
    if number in [known.value for known in signal.Signals]:
        how = f"ended by {signal.Signals(number).name}"
    elif code == _BAD_INPUT and "refork: " not in (job.message or ""):
        how = f"ended with exit code {code} and not a word about it"
    else:
        return code
    raise InfraFailure(
        f"{job.submission_id}: {how}: a crash outside of Python, or something killed it (out of memory?); "
        "`refork launch logs` has what it printed, and --resume goes on from its last checkpoint"
    )


def reason(job: Any) -> str:
    """Why a job is as it is, in a line: of what it printed last, or what Ray says."""
    lines = [line for line in (job.message or "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else job.status.value.lower()


def _client(address: str) -> Any:
    try:
        from ray.job_submission import JobSubmissionClient

        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.WARNING)
        return JobSubmissionClient(address)
    except RuntimeError as error:
        if "ray[default]" in str(error):
            raise BadInput("refork launch needs the job client of Ray: pip install 'refork[cluster]'") from error
        raise BadInput(f"--address {address}: {str(error).splitlines()[0]}") from error


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)
