"""Searches a failed rollout for the decision that lost it, by going back and playing on, and plays what corrects it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from refork.envs.forkable import ForkableEnv
from refork.replay.attribution import Answers, next_state, posterior
from refork.replay.player import GroupRequest, play_branch
from refork.replay.policy import Policy, sample
from refork.replay.seeding import generator, task_seed
from refork.replay.trajectory import Decision, Origin, Trajectory

CERTAIN = 0.9
"""Belief in one decision at which the search ends."""
SUSPECTS = 3
"""Decisions of most belief that corrections are played at; those of less than `LEAST` are left out."""
LEAST = 0.05
CORRECTIONS = 3
"""Other actions tried at each, the likeliest under the policy first."""


@dataclass(frozen=True)
class Correction:
    """Another action at a suspected decision, played on from under the policy."""

    action: int
    label: str
    values: tuple[float, ...]
    """Returns of its continuations, judged ones only."""

    @property
    def value(self) -> float | None:
        """Their mean."""
        return float(np.mean(self.values)) if self.values else None


@dataclass(frozen=True)
class Suspect:
    """A decision that may have lost the rollout."""

    step: int
    belief: float
    action: int
    label: str
    corrections: tuple[Correction, ...]
    """The one that returns most first."""

    @property
    def restored(self) -> float | None:
        """What the best correction returns."""
        return self.corrections[0].value if self.corrections else None


@dataclass(frozen=True)
class Attribution:
    """What the search found."""

    rollout: Trajectory
    answers: Answers
    belief: np.ndarray
    """(steps + 1,): that decision 0, 1, ... lost it; last, that none did: the policy fails from the start as well."""
    suspects: tuple[Suspect, ...]
    """The likeliest first; none where none is more likely than that there is none."""
    forks: int
    """Continuations played in all: the search and the corrections."""


def label(env: ForkableEnv, action: int) -> str:
    """Text of an action in the present state; "" where the environment has none."""
    describe = getattr(env, "describe", None)
    return "" if describe is None else str(describe(action))


class Search:
    """Of one failed rollout. A continuation succeeds when it returns more than the rollout did."""

    def __init__(self, env: ForkableEnv, policy: Policy, rollout: Trajectory, seed: int) -> None:
        self._env, self._policy, self._rollout = env, policy, rollout
        self._request = GroupRequest(rollout.task, rollout.episode, seed, task_seed(seed, rollout.task))
        self._rng = generator(seed, "refork attribute")
        self._played = 0
        env.reset(seed=self._request.env_seed)

    def attribution(self, n: int, most: int) -> Attribution:
        answers = self.searched(most)
        belief = posterior(answers)
        likelier = np.flatnonzero(belief[:-1] > max(LEAST, belief[-1]))
        order = likelier[np.argsort(-belief[likelier], kind="stable")][:SUSPECTS]
        suspects = tuple(self._suspect(int(t), float(belief[t]), n) for t in order)
        return Attribution(self._rollout, answers, belief, suspects, self._played)

    def searched(self, most: int) -> Answers:
        """Go back where it tells most, until one decision is certain enough or `most` continuations were played."""
        answers = Answers.none(self._rollout.steps)
        while posterior(answers).max() < CERTAIN and self._played < most:
            answers = self.ask(answers, next_state(answers))
        return answers

    def ask(self, answers: Answers, step: int) -> Answers:
        """With what one more continuation from the state before decision `step` came to; what was not judged tells
        nothing."""
        value = self._play(step, lambda probabilities: sample(probabilities, self._rng))
        return answers if value is None else answers.add(step, value > self._lost)

    @property
    def _lost(self) -> float:
        assert self._rollout.value is not None  # _check saw to it
        return self._rollout.value

    def _play(self, step: int, choose: Callable[[np.ndarray], int]) -> float | None:
        """The return of one continuation from the state before a decision; None when it was not judged."""
        ref = self._decision(step).ref
        assert ref is not None
        action = choose(self._policy.probabilities(self._env.restore(ref)))
        origin = Origin(self._rollout.key, step, action == self._decision(step).action)
        self._played += 1
        return play_branch(self._env, self._policy, self._request, 2000 + self._played, ref, action, origin).value

    def _decision(self, step: int) -> Decision:
        return self._rollout.decisions[step]

    def _suspect(self, step: int, belief: float, n: int) -> Suspect:
        decision = self._decision(step)
        assert decision.ref is not None
        others = self._policy.probabilities(self._env.restore(decision.ref)).copy()
        others[decision.action] = 0.0
        tried = [int(a) for a in np.argsort(-others, kind="stable")[:CORRECTIONS] if others[a] > 0]
        labels = {action: label(self._env, action) for action in (decision.action, *tried)}
        found = [Correction(a, labels[a], self._returns(step, a, n)) for a in tried]
        found.sort(key=lambda c: -np.inf if c.value is None else c.value, reverse=True)
        return Suspect(step, belief, decision.action, labels[decision.action], tuple(found))

    def _returns(self, step: int, action: int, n: int) -> tuple[float, ...]:
        values = [self._play(step, lambda _: action) for _ in range(n)]
        return tuple(value for value in values if value is not None)
