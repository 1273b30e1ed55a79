"""`refork sync`: uploads what W&B recorded offline."""

from __future__ import annotations

from pathlib import Path


def sync(*runs: Path) -> int:
    """Upload to W&B what these runs recorded offline: rows, pictures and models, of every time they were gone on with.

    What was sent once is not sent again.

    Parameters
    ----------
    runs
        Folders of runs.
    """
    from refork.cluster.run_folder import saved_job
    from refork.cluster.wandb_sync import check_server, unsent
    from refork.envs.forkable import BadInput, InfraFailure

    if not runs:
        raise BadInput("no run given: refork sync RUN [RUN ...]")
    for run in runs:
        saved_job(run)
    if any(unsent(run) for run in runs):
        check_server()
    refused = [line for run in runs for line in _upload(run)]
    if refused:
        raise InfraFailure(f"not all was sent: {refused[0]} ({_count(len(refused), 'error')}); the rows were")
    return 0


def _upload(run: Path) -> list[str]:
    """Send one run and say what was sent; returns what W&B refused."""
    from refork.cluster.run_folder import RunFolder
    from refork.cluster.wandb_sync import upload

    with RunFolder(run):
        sent = upload(run)
    if not sent.segments:
        print(f"{run}: nothing to send")
        return []
    counts = (_count(sent.segments, "segment"), _count(sent.rows, "row"), _count(sent.models, "model"))
    print(f"{run}: sent {', '.join(counts)}{f' to {sent.url}' if sent.url else ''}", flush=True)
    return sent.refused


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
