"""`refork/RepairMenu-v0`: repair a broken package by choosing from a menu of candidate edits.

Edits are changes of text on this side; a sandbox is needed only to run tests. The menu is made from the failing tests
run at the start, and again for every workspace in which fewer fail. The reference solution is nowhere within reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import gymnasium
import numpy as np
from refork.envs.forkable import ExecutionCache, InfraFailure, Noise, Outcome, Spent, StateMismatch, StateRef
from refork.envs.swe import features
from refork.envs.swe.features import FEATURES, KINDS, Trial, Whole
from refork.envs.swe.grading import grade
from refork.envs.swe.judging import Grader, Judgement, both, reward_of
from refork.envs.swe.localise import Spectrum
from refork.envs.swe.menu import Item, build_menu
from refork.envs.swe.prober import Probe
from refork.envs.swe.repair_state import Applied, RepairState, Stack, Workspace
from refork.envs.swe.sandbox.base import Backend
from refork.envs.swe.tasks import SWETask
from refork.envs.swe.taskset import TaskSet
from refork.envs.swe.workbench import Workbench

Observation = dict[str, np.ndarray]
MAX_EDITS = 8
NEIGHBOURS = 40
MENUS = 128
"""Menus kept in memory."""


class Menu:
    """The candidates at one tested workspace, and what is needed to tell what became of each."""

    def __init__(self, items: tuple[Item, ...], spectrum: Spectrum, size: int, children: Sequence[str]) -> None:
        self.items = items
        self.rows = features.static_rows(items, spectrum, size)
        self.place = {child: i for i, child in enumerate(children)}
        """Place on the menu by the id of the workspace the item leads to."""
        self.by_key: dict[str, int] = {}
        for i, item in enumerate(items):
            self.by_key.setdefault(item.key, i)
        self.texts = tuple(str(item) for item in items)


class RepairMenuEnv(gymnasium.Env[Observation, int]):
    """Actions: 0..size-1 apply a candidate, then undo, run failing tests, run neighbouring tests, submit.

    Observation: `features` (size + 4, F) float32, columns `features.FEATURES`; `mask` (size + 4,) bool. A masked
    action is a step that changes nothing else (`info["invalid"]`). Reward comes at the end: 1 iff the grading says so.
    """

    feature_names = FEATURES

    def __init__(
        self,
        tasks: TaskSet,
        task: SWETask,
        backend: Backend,
        cache: ExecutionCache | None = None,
        *,
        grader: Grader = grade,
        close_backend: bool = False,
        size: int = 60,
        max_steps: int = 16,
    ) -> None:
        if size < 1 or max_steps < 1:
            raise ValueError(f"RepairMenu: size and max_steps must be at least 1, not {size} and {max_steps}")
        self.bench = Workbench(tasks, task, backend, cache, grader=grader, close_backend=close_backend)
        self.size, self.max_steps = size, max_steps
        self.undo, self.run_failing, self.run_neighbours, self.submit = range(size, size + len(KINDS) - 1)
        count = size + len(KINDS) - 1
        self.action_space = gymnasium.spaces.Discrete(count)
        self.observation_space = gymnasium.spaces.Dict(
            {
                "features": gymnasium.spaces.Box(-100, 100, (count, len(FEATURES)), np.float32),
                "mask": gymnasium.spaces.MultiBinary(count),
            }
        )
        self.state = RepairState((), {}, max_steps)
        self.failing: tuple[str, ...] = ()
        self.menu_at = lru_cache(maxsize=MENUS)(self._menu_at)

    # ---- Gymnasium

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Run the tests of the untouched workspace (once: then it is remembered) and start an episode.

        Raises InfraFailure, also for a task without a failing test in its workspace (a release pair's are not there).
        """
        super().reset(seed=seed)
        probe = self._start()
        known = self._known_failing(probe.spectrum)
        self.state = RepairState((), {}, self.max_steps).learned(self.bench.workspaces.start.id, failing=known)
        info = {**self._info(), "spent": probe.spent, "problem_statement": self.bench.task.problem_statement}
        return self.observe(), info

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        if self.state.ended:
            raise gymnasium.error.ResetNeeded(f"the episode is over ({self.state.ended}): reset or restore first")
        valid = bool(self.mask()[action])
        self.state = replace(self.state, steps_left=self.state.steps_left - 1)
        probe = self._act(int(action)) if valid else None
        if not self.state.ended and self.state.steps_left == 0:
            self.state = replace(self.state, ended="out of steps")
        info: dict[str, Any] = {"invalid": not valid, "spent": probe.spent if probe else Spent(False, 0.0)}
        reward = 0.0
        if self.state.ended:
            outcome, spent = self._judged()
            reward = reward_of(outcome)
            info |= {"outcome": outcome, "spent": both(info["spent"], spent)}
        terminated, truncated = self.state.ended == "submitted", self.state.ended == "out of steps"
        return self.observe(), reward, terminated, truncated, {**self._info(), **info}

    def close(self) -> None:
        self.bench.close()

    # ---- ForkableEnv

    @property
    def state_id(self) -> str:
        return self.bench.workspaces.state_id(self.bench.task.instance_id, self.state)

    def snapshot(self) -> StateRef:
        return StateRef(self.state_id, self.state.to_json())

    def restore(self, ref: StateRef, *, noise: Noise = "fresh") -> Observation:
        """O(1): the state is in the reference. `noise` changes nothing, there is none."""
        state = RepairState.from_json(ref.payload)
        found = self.bench.workspaces.state_id(self.bench.task.instance_id, state)
        if found != ref.state_id:
            raise StateMismatch(f"{self.bench.task.instance_id}: expected state {ref.state_id}, restored {found}")
        self._start()
        self.state = state
        return self.observe()

    def grade(self) -> Outcome:
        return self._judged().outcome

    def _judged(self) -> Judgement:
        """The outcome here; what the tests that failed at the start have shown here is not run again."""
        known = self.state.known.get(self.workspace.id)
        if known is None or not known.failing:
            return self.bench.grade(self.workspace)
        at_start = self.workspace.id == self.bench.workspaces.start.id
        shown = self._start() if at_start else self.bench.run(self.workspace, self.failing, trace=False)
        outcome, spent = self.bench.grade(self.workspace, shown.spectrum)
        return Judgement(outcome, both(shown.spent, spent))

    # ---- what people and language models read

    @property
    def workspace(self) -> Workspace:
        return self.bench.workspaces.at(self.state.stack)

    def describe(self, action: int) -> str:
        """One line on an action: for a candidate its place, operator and the line before and after."""
        menu = self.menu()
        if action < self.size:
            return menu.texts[action] if action < len(menu.items) else "(no candidate)"
        return KINDS[action - self.size + 1]

    def menu(self) -> Menu:
        return self.menu_at(self.state.stack[: self._base()])

    def _info(self) -> dict[str, Any]:
        return {"menu": self.menu().texts, "workspace_id": self.workspace.id, "steps_left": self.state.steps_left}

    # ---- actions

    def mask(self) -> np.ndarray:
        """(size + 4,) bool: what may be done now. Submitting always may."""
        mask = np.zeros(self.size + len(KINDS) - 1, dtype=np.bool_)
        mask[self.submit] = True
        if self.state.ended:
            return mask
        known = self.state.known.get(self.workspace.id)
        mask[self.undo] = bool(self.state.stack)
        mask[self.run_failing] = known is None or known.failing is None
        mask[self.run_neighbours] = bool(self.state.stack) and (known is None or known.broken is None)
        if len(self.state.stack) < MAX_EDITS:
            pending = self.state.stack[self._base() :]
            for i, item in enumerate(self.menu().items):
                mask[i] = not any(item.candidate.edit.touches(a.edit) for a in pending)
        return mask

    def _act(self, action: int) -> Probe | None:
        stack = self.state.stack
        if action < self.size:
            edit = self.menu().items[action].candidate.edit
            self.state = replace(self.state, stack=(*stack, Applied(edit, self._base())))
        elif action == self.undo:
            self.state = replace(self.state, stack=stack[:-1])
        elif action == self.submit:
            self.state = replace(self.state, ended="submitted")
        elif action == self.run_failing:
            probe = self.bench.run(self.workspace, self.failing, trace=False)
            self.state = self.state.learned(self.workspace.id, failing=self._known_failing(probe.spectrum))
            return probe
        else:
            probe = self.bench.run(self.workspace, self._neighbours(), trace=False)
            self.state = self.state.learned(self.workspace.id, broken=len(probe.spectrum.failing))
            return probe
        return None

    def _start(self) -> Probe:
        """All tests on the untouched workspace."""
        probe = self.bench.run(self.bench.workspaces.start, self.bench.tests)
        self.failing = probe.spectrum.failing
        if not self.failing:
            raise InfraFailure(f"{self.bench.task.instance_id}: no test of its workspace fails, so there is no menu")
        return probe

    def _known_failing(self, spectrum: Spectrum) -> tuple[int, ...]:
        return tuple(i for i, test in enumerate(self.failing) if spectrum.verdicts[test].failing)

    def _neighbours(self) -> tuple[str, ...]:
        """Tests passing at the start that run an edited line, those that run the fewest lines first."""
        edited = {(a.edit.path, n) for a in self.state.stack for n in range(a.edit.start_line, a.edit.end_line + 1)}
        verdicts = self._start().spectrum.verdicts
        near = sorted(
            (len(v.lines), test)
            for test, v in verdicts.items()
            if v.result == "passed" and not edited.isdisjoint(v.lines)
        )
        return tuple(test for _, test in near[:NEIGHBOURS])

    # ---- menu and observation

    def _bases(self) -> list[int]:
        """How many edits lead to each workspace with a menu: the start, and where fewer tests fail than so far.

        Not where that became known later, by another way there: the edits above it are placed by an earlier text.
        """
        bases, least, stack = [0], len(self.failing), self.state.stack
        for n in range(1, len(stack) + 1):
            failing = self._failing_at(stack[:n])
            if failing is not None and failing < least and all(above.base >= n for above in stack[n:]):
                bases.append(n)
                least = failing
        return bases

    def _base(self) -> int:
        return self._bases()[-1]

    def _menu_at(self, stack: Stack) -> Menu:
        workspace = self.bench.workspaces.at(stack)
        spectrum = self._start().spectrum
        for applied in stack:
            spectrum = spectrum.moved(applied.edit)
        if stack:
            spectrum = spectrum.overlaid(self.bench.run(workspace, self.failing).spectrum)
        items = build_menu(workspace.modules, spectrum, self.size, self.bench.workspaces.start.modules)
        children = self.bench.workspaces.children(stack, (item.candidate.edit for item in items))
        return Menu(items, spectrum, self.size, children)

    def observe(self) -> Observation:
        mask = self.mask()
        return {"features": features.fill(self.menu().rows, self._whole(), self._trials()), "mask": mask}

    def _failing_at(self, stack: Stack) -> int | None:
        known = self.state.known.get(self.bench.workspaces.at(stack).id)
        return None if known is None or known.failing is None else len(known.failing)

    def _whole(self) -> Whole:
        stack, base = self.state.stack, self._base()
        known = self.state.known.get(self.workspace.id)
        before = [n for n in range(len(stack)) if self._failing_at(stack[:n]) is not None]
        return Whole(
            tests=len(self.failing),
            base_failing=self._failing_at(stack[:base]) or 0,
            failing=self._failing_at(stack),
            before=self._failing_at(stack[: before[-1]]) if before else None,
            broken=None if known is None else known.broken,
            pending=len(stack) - base,
            edits=len(stack),
            steps_left=self.state.steps_left,
            max_steps=self.max_steps,
            tried=len(self.state.known) - 1,
        )

    def _trials(self) -> dict[int, Trial]:
        """Places on the menu that were tried at this base, or the same edit at an earlier one."""
        bases = self._bases()
        menu = self.menu()
        trials: dict[int, Trial] = {}
        for n in bases:
            earlier = self.menu_at(self.state.stack[:n])
            failing = self._failing_at(self.state.stack[:n]) or 0
            for workspace_id, known in self.state.known.items():
                place = earlier.place.get(workspace_id)
                if place is None or known.failing is None:
                    continue
                gain = float(np.clip((failing - len(known.failing)) / max(1, failing), -1, 1))
                if n == bases[-1]:
                    trials[place] = replace(trials.get(place, Trial()), gain=gain)
                elif (here := menu.by_key.get(earlier.items[place].key)) is not None:
                    trials[here] = replace(trials.get(here, Trial()), gain_before=gain)
        return trials
