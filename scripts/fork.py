"""`refork fork`: goes back to one decision of a recorded rollout and plays on from there in other ways."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from refork.envs.forkable import BadInput
from rich.console import Console


def fork(
    run: Path,
    task: str,
    /,
    *,
    step: int,
    action: tuple[int, ...] = (),
    n: Annotated[int, Parameter(name=["-n", "--n"])] = 1,
    policy: Path | None = None,
    episode: int | None = None,
    attempt: int = 0,
    seed: int = 0,
) -> int:
    """Restore one decision of a recorded rollout, play alternatives to the end, and show what the decision was worth.

    Prints the return of the rollout, the returns of the alternatives, and their difference (the differential).

    Parameters
    ----------
    run
        The folder of a run.
    task
        A task that was played in it.
    step
        The decision to go back to, from 0.
    action
        Play this action there instead of the one that was taken; may be given several times.
    n
        Continuations: of each action given, or of actions drawn from the policy without the one taken.
    policy
        Checkpoint whose policy plays on; default: the run's newest.
    episode
        Which rollout of the task: its episode; default: the newest.
    attempt
        Which rollout of that episode.
    seed
        Of what is drawn.
    """
    from refork.cluster.forking import fork_rollout
    from refork.scripts.fork_tree import fork_tree

    if n < 1:
        raise BadInput(f"-n: must be at least 1, got {n}")
    result = fork_rollout(run, task, step, action, n, policy, episode, attempt, seed)
    console = Console(highlight=False)
    console.print(fork_tree(result))
    console.print(f"return of the rollout: {_shown(result.taken)}")
    console.print(f"mean return of {len(result.branches)} alternatives: {_shown(result.alternatives)}")
    console.print(f"differential: {_shown(result.differential)}")
    return 0


def _shown(value: float | None) -> str:
    return "not judged" if value is None else f"{value:+.3f}"
