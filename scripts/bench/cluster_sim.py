"""A run on a cluster as a discrete-event simulation: who waits for whom, second by second.

It follows what the code does (trainers/loop.py, trainers/ahead.py, cluster/actors.py, cluster/ranks.py): every learner
has rollout actors of its own and one thread that hands them groups, one call at a time; the experience of an update is
complete when the last group of the slowest learner is there; the policy that plays it is `staleness` updates old, and
groups of two updates are never out at once. The weights reach a node with its first group of a version.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

Steps = Generator[simpy.Event, Any, Any]
Draw = Callable[[int, int], float]
"""Seconds that a group is played, of that update and place in it."""
ASKINGS = 2
"""As in cluster/actors.py: what fails with its node twice is given up."""


@dataclass(frozen=True)
class Costs:
    """Seconds unless named otherwise. All 0: playing and nothing else."""

    call: float = 0.0
    """The handing thread's time for each group."""
    wait_per_call_out: float = 0.0
    """More of it for each group that is out."""
    answer: float = 0.0
    """On the handing thread, to take in what a group gives: moved and read."""
    actor_extra: float = 0.0
    """On the actor, for each group, beside playing."""
    record_per_group: float = 0.0
    """To write a group to the run's storage, before it is learnt from."""
    update: float = 0.0
    """Of every update, whatever its size."""
    update_per_group: float = 0.0
    """Shared out among the learners."""
    exchange: float = 0.0
    """Of learners in every update: sums of gradients, experience of the others; for each doubling of their number."""
    gather_per_group: float = 0.0
    """To get a group of another learner's."""
    weights: float = 0.0
    """From one node to another; nodes that have them pass them on."""
    evaluate_every: int = 0
    evaluate_groups: int = 0
    save_every: int = 0
    save: float = 0.0
    node_life: float = math.inf
    """Mean time to the failure of a node."""
    recover: float = 0.0
    """Until a failed node plays again."""
    stall: float = 0.0
    """Of the handing thread, for every actor that it loses."""


@dataclass(frozen=True)
class Layout:
    """What the cluster is, and how much each update asks of it."""

    nodes: int = 1
    actors_per_node: int = 1
    learners: int = 1
    groups: int = 8
    """Per update."""
    updates: int = 10
    staleness: int = 0

    @property
    def actors(self) -> int:
        return self.nodes * self.actors_per_node


@dataclass
class Told:
    """What came of it."""

    seconds: float = 0.0
    groups: int = 0
    played_s: float = 0.0
    """Seconds of actors at work."""
    learnt_s: float = 0.0
    """Seconds of learners at work: updates, not the handing out."""
    ends: list[float] = field(default_factory=list)
    """When each update was done."""
    lost: int = 0
    """Groups that were given up: their node failed twice."""
    again: int = 0
    """Groups played a second time."""

    def rate(self) -> float:
        """Groups per second."""
        return self.groups / self.seconds if self.seconds else 0.0


class _Node:
    """One node: when it fails next, and which weights it has."""

    def __init__(self, run: _Run) -> None:
        self._run, self._version, self._arrival = run, -1, 0.0
        self.fails = run.life()

    def up(self) -> float:
        """From when on it plays: now, or once it is there again."""
        now, recover = self._run.env.now, self._run.costs.recover
        while now >= self.fails + recover:
            self.fails += recover + self._run.life()
        return self.fails + recover if now >= self.fails else now

    def weights(self, version: int) -> float:
        """When it has that version, asked for now. Those that have it pass it on, so they double in every step."""
        if version > self._version:
            now, one = self._run.env.now, self._run.costs.weights
            begun, holders = self._run.sent.get(version, (now, 1))
            self._run.sent[version] = (begun, holders + 1)
            steps = math.floor(math.log2(holders)) + 1
            self._version, self._arrival = version, max(begun + steps * one, now + one)
        return self._arrival


class _Learner:
    """One learner as it collects: its actors, and the thread that hands groups to them."""

    def __init__(self, run: _Run, rank: int) -> None:
        self._run, self._out = run, 0
        self._idle: simpy.Store = simpy.Store(run.env)
        self._idle.items.extend(range(rank, run.layout.actors, run.layout.learners))

    def collect(self, update: int, groups: Sequence[int], version: int) -> Steps:
        """Hand out the groups one by one to actors that are idle; done when all are back."""
        run, waiting, left = self._run, deque((group, 1) for group in groups), len(groups)
        back: simpy.Store = simpy.Store(run.env)
        while left:
            while waiting and (self._idle.items or not self._out):
                actor = yield self._idle.get()
                self._out += 1
                yield run.env.timeout(run.costs.call + run.costs.wait_per_call_out * self._out)
                run.env.process(self._play(actor, update, *waiting.popleft(), version, back))
            group, asking, whole = yield back.get()
            yield run.env.timeout(run.costs.answer if whole else run.costs.stall)
            if whole or asking == ASKINGS:
                left -= 1
                run.told.lost += not whole
            else:
                waiting.appendleft((group, asking + 1))
                run.told.again += 1

    def _play(self, actor: int, update: int, group: int, asking: int, version: int, back: simpy.Store) -> Steps:
        env, node = self._run.env, self._run.nodes[actor // self._run.layout.actors_per_node]
        yield env.timeout(max(0.0, node.up() - env.now))
        yield env.timeout(max(0.0, node.weights(version) - env.now))
        seconds, fails = self._run.draw(update, group) + self._run.costs.actor_extra, node.fails
        whole = env.now + seconds <= fails
        yield env.timeout(seconds if whole else max(0.0, fails - env.now))
        self._run.told.played_s += seconds if whole else 0.0
        self._out -= 1
        back.put((group, asking, whole))
        yield env.timeout(0.0 if whole else self._run.costs.recover)
        self._idle.put(actor)


class _Run:
    """The loop of a training run, and what its parts share."""

    def __init__(self, layout: Layout, costs: Costs, draw: Draw, seed: int) -> None:
        self.env, self.layout, self.costs, self.draw = simpy.Environment(), layout, costs, draw
        self.random, self.told = random.Random(seed), Told()
        self.sent: dict[int, tuple[float, int]] = {}
        """Of each version: when the first node asked for it, and how many have it."""
        self.nodes = [_Node(self) for _ in range(layout.nodes)]
        self._learners = [_Learner(self, rank) for rank in range(layout.learners)]
        self._playing = simpy.Resource(self.env)
        """One collection after the other, as they were asked for."""

    def life(self) -> float:
        mean = self.costs.node_life
        return math.inf if math.isinf(mean) else self.random.expovariate(1 / mean)

    def collect(self, update: int, groups: int, version: int) -> Steps:
        """All learners their share; then each gets what the others have."""
        ranks = len(self._learners)
        with self._playing.request() as turn:
            yield turn
            shares = [range(rank, groups, ranks) for rank in range(ranks)]
            pairs = zip(self._learners, shares, strict=True)
            parts = [self.env.process(one.collect(update, share, version)) for one, share in pairs]
            yield simpy.AllOf(self.env, parts)
            yield self.env.timeout(self.costs.gather_per_group * (groups - groups // ranks if ranks > 1 else 0))

    def train(self) -> Steps:
        layout, asked = self.layout, deque[simpy.Process]()
        for update in range(layout.updates):
            while len(asked) <= min(layout.staleness, layout.updates - 1 - update):
                number = update + len(asked)
                version = max(0, number - layout.staleness)
                asked.append(self.env.process(self.collect(number, layout.groups, version)))
            yield asked.popleft()
            self.told.groups += layout.groups
            yield from self._learn()
            yield from self._between(update + 1)
            self.told.ends.append(self.env.now)
        self.told.seconds = self.env.now

    def _learn(self) -> Steps:
        costs, groups, ranks = self.costs, self.layout.groups, self.layout.learners
        seconds = costs.record_per_group * groups + costs.update + costs.update_per_group * groups / ranks
        seconds += costs.exchange * math.ceil(math.log2(ranks))
        self.told.learnt_s += seconds
        yield self.env.timeout(seconds)

    def _between(self, update: int) -> Steps:
        costs = self.costs
        if costs.evaluate_every and update % costs.evaluate_every == 0:
            yield self.env.process(self.collect(-1, costs.evaluate_groups, update))
        if costs.save_every and update % costs.save_every == 0:
            yield self.env.timeout(costs.save)


def simulate(layout: Layout, costs: Costs, draw: Draw, seed: int = 0) -> Told:
    """The run from its first call to its last update. `seed`: of what nodes live for; `draw` has its own."""
    run = _Run(layout, costs, draw, seed)
    run.env.run(run.env.process(run.train()))
    return run.told


def drawn_from(measured: Sequence[float], seed: int) -> Draw:
    """Groups of measured lengths, drawn with replacement; the same ones whatever the layout."""

    def draw(update: int, group: int) -> float:
        return measured[hash((seed, update, group)) % len(measured)]  # of integers: the same in every process

    return draw
