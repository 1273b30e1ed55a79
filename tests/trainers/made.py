"""Experience made by hand, for tests of estimators and losses."""

from collections.abc import Sequence

from refork.envs.forkable import InfraError, Outcome, Reward, Timeout
from refork.replay.trajectory import Decision, Fork, Origin, TaskExperience, Trajectory


def outcome(value: float | str) -> Outcome:
    """A return, or 'infra' or 'timeout'."""
    if isinstance(value, str):
        return InfraError("broken") if value == "infra" else Timeout("grading")
    return Reward(value)


def main(attempt: int, value: float | str, probabilities: Sequence[float] = (0.5, 0.5, 0.5)) -> Trajectory:
    """A main rollout whose taken actions had these probabilities."""
    decisions = tuple(Decision(f"s{t}", None, 0, 0.0, p, 0.0) for t, p in enumerate(probabilities))
    return Trajectory("t", 0, attempt, decisions, outcome(value))


def branch(attempt: int, parent: int, step: int, value: float | str, length: int = 3, same: bool = False) -> Trajectory:
    """A branch of main rollout `parent` from `step` to the end of an episode of `length` steps."""
    decisions = tuple(Decision(f"b{attempt}", None, 1, 0.0, 0.5, 0.0) for _ in range(length - step))
    return Trajectory("t", 0, attempt, decisions, outcome(value), Origin(f"t/0/{parent}", step, same))


def group(mains: Sequence[Trajectory], branches: Sequence[Trajectory] = (), selection: float = 1 / 3) -> TaskExperience:
    """A task group; branches of one parent and step make one fork."""
    forks: dict[tuple[str, int], tuple[list[str], list[str]]] = {}
    for b in branches:
        assert b.origin is not None
        others, replays = forks.setdefault((b.origin.parent, b.origin.step), ([], []))
        (replays if b.origin.same_action else others).append(b.key)
    made = tuple(Fork(p, s, selection, tuple(o), tuple(r)) for (p, s), (o, r) in forks.items())
    return TaskExperience("t", 0, tuple(mains), tuple(branches), made)
