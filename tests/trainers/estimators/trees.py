"""Trees made by hand and at random: states are letters, so equal letters merge."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st
from refork.envs.forkable import InfraError, Outcome, Reward
from refork.replay.trajectory import Decision, Fork, Origin, TaskExperience, Trajectory


def outcome(value: float | None) -> Outcome:
    return InfraError("broken") if value is None else Reward(value)


def decisions(states: str, actions: Sequence[int] | None = None) -> tuple[Decision, ...]:
    taken = [0] * len(states) if actions is None else actions
    return tuple(Decision(s, None, a, -0.7, 0.5, 0.7) for s, a in zip(states, taken, strict=True))


def main(number: int, states: str, value: float | None, actions: Sequence[int] | None = None) -> Trajectory:
    return Trajectory("t", 0, number, decisions(states, actions), outcome(value))


def branch(number: int, parent: int, step: int, states: str, value: float | None) -> Trajectory:
    """A branch of main rollout `parent` that begins in `states[0]`, the state before its decision `step`."""
    return Trajectory("t", 0, number, decisions(states), outcome(value), Origin(f"t/0/{parent}", step))


def grown(mains: Sequence[Trajectory], branches: Sequence[Trajectory] = ()) -> TaskExperience:
    """A task group; branches of one parent and step make one fork."""
    forks: dict[tuple[str, int], list[str]] = {}
    for b in branches:
        assert b.origin is not None
        forks.setdefault((b.origin.parent, b.origin.step), []).append(b.key)
    made = tuple(Fork(parent, step, 0.5, tuple(keys)) for (parent, step), keys in forks.items())
    return TaskExperience("t", 0, tuple(mains), tuple(branches), made)


def judged(experience: TaskExperience) -> TaskExperience:
    """Without what was not judged, but for mains that were forked."""
    parents = {f.parent for f in experience.forks}
    mains = [t for t in experience.mains if t.value is not None or t.key in parents]
    return grown(mains, [t for t in experience.branches if t.value is not None])


def shifted(experience: TaskExperience, scale: float, shift: float) -> TaskExperience:
    """Every return times `scale` plus `shift`."""

    def moved(t: Trajectory) -> Trajectory:
        return t if t.value is None else replace(t, outcome=Reward(scale * t.value + shift))

    return replace(
        experience, mains=tuple(map(moved, experience.mains)), branches=tuple(map(moved, experience.branches))
    )


VALUES = st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.integers(0, 20).map(lambda i: i / 20))


@st.composite
def experiences(draw: st.DrawFn) -> TaskExperience:
    """Groups of up to four, some without decisions or judgement, forked up to four times; all begin in one state."""
    mains = []
    for number in range(draw(st.integers(0, 4))):
        states = draw(st.sampled_from(["", "r", "ra", "rb", "rab", "rba", "raa", "rabc"]))
        actions = draw(st.lists(st.integers(0, 2), min_size=len(states), max_size=len(states)))
        mains.append(main(number, states, draw(VALUES) if states else None, actions))
    forkable = [m for m in mains if m.steps]
    branches = []
    for number in range(10, 10 + draw(st.integers(0, 4)) if forkable else 10):
        parent = draw(st.sampled_from(forkable))
        step = draw(st.integers(0, parent.steps - 1))
        states, value = draw(st.sampled_from(["", "a", "bc", "aa"])), draw(VALUES)
        lost = value is None and draw(st.booleans())  # before its first decision
        begun = "" if lost else parent.decisions[step].state_id + states
        branches.append(branch(number, parent.attempt, step, begun, value))
    return grown(mains, branches)
