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
    step: int | None = None,
    attribute: Annotated[bool, Parameter(negative="")] = False,
    action: tuple[int, ...] = (),
    n: Annotated[int | None, Parameter(name=["-n", "--n"])] = None,
    policy: Path | None = None,
    episode: int | None = None,
    attempt: int | None = None,
    forks: int = 300,
    seed: int = 0,
) -> int:
    """Restore one decision of a recorded rollout, play alternatives to the end, and show what the decision was worth.

    Prints the return of the rollout, the returns of the alternatives, and their difference (the differential). With
    --attribute it searches a failed rollout for the decision that lost it, and shows what corrects it.

    Parameters
    ----------
    run
        The folder of a run.
    task
        A task that was played in it.
    step
        The decision to go back to, from 0.
    attribute
        Find the decision that lost a failed rollout: go back where it tells most, until one is 90 % sure.
    action
        Play this action there instead of the one that was taken; may be given several times.
    n
        Continuations: of each action given, or of actions drawn from the policy without the one taken (default 1);
        with --attribute of each correction (default 4).
    policy
        Checkpoint whose policy plays on; default: the run's newest.
    episode
        Which rollout of the task: its episode; default: the newest (with --attribute: the newest that failed).
    attempt
        Which rollout of that episode; default: the first.
    forks
        With --attribute: continuations that the search may take.
    seed
        Of what is drawn.
    """
    if n is not None and n < 1:
        raise BadInput(f"-n: must be at least 1, got {n}")
    if attribute:
        if step is not None or action:
            raise BadInput("--attribute: finds the decision itself; leave out --step and --action")
        if forks < 1:
            raise BadInput(f"--forks: must be at least 1, got {forks}")
        return _attribute(run, task, policy, episode, attempt, n or 4, forks, seed)
    if step is None:
        raise BadInput("--step: give the decision to go back to, or --attribute to find the one that lost a rollout")

    from refork.cluster.forking import fork_rollout
    from refork.scripts.fork_tree import fork_tree

    result = fork_rollout(run, task, step, action, n or 1, policy, episode, attempt or 0, seed)
    console = Console(highlight=False)
    console.print(fork_tree(result))
    console.print(f"return of the rollout: {_shown(result.taken)}")
    console.print(f"mean return of {len(result.branches)} alternatives: {_shown(result.alternatives)}")
    console.print(f"differential: {_shown(result.differential)}")
    return 0


def _attribute(
    run: Path, task: str, policy: Path | None, episode: int | None, attempt: int | None, n: int, forks: int, seed: int
) -> int:
    from refork.cluster.attributing import attribute
    from refork.scripts.attribution_table import search_line, suspects_table, verdict

    found = attribute(run, task, policy, episode, attempt, n, forks, seed)
    console = Console(highlight=False)
    console.print(search_line(found))
    if found.suspects:
        console.print(suspects_table(found))
    console.print(verdict(found))
    return 0


def _shown(value: float | None) -> str:
    return "not judged" if value is None else f"{value:+.3f}"
