"""Step accuracy of failure attribution on the chain, where the decision that lost a rollout is known exactly.

Policies trained for 0, 25, 50 and 100 updates play unseen tasks; of each, failed rollouts are attributed twice, with
the same belief and the same kind of continuations: by the search, which goes back where it tells most, and one by one,
with `EACH` continuations from every state. A policy that rarely succeeds tells little: the untrained one succeeds on 9
%. The last line is one JSON object: by updates, the share of right decisions with its 95 % bootstrap interval, the
median number of forks, and the share of rollouts where the search says that no decision is to blame.

    python scripts/bench/attribution.py [--rollouts 100] [--quick]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from refork.agents.registry import make_policy
from refork.envs.chain import ChainEnv, make_task
from refork.replay.attribution import Answers, posterior
from refork.replay.counterfactual import collect_group
from refork.replay.failure_search import Search
from refork.replay.player import GroupRequest
from refork.replay.policy import Policy
from refork.replay.trajectory import Trajectory
from refork.scripts.bench.chain import JUDGED, chain_loop
from refork.trainers.stats import bootstrap

EACH = 8
MOST = 300
"""Forks that the search may take."""


def lost(rollout: Trajectory) -> int:
    """The first critical decision that is wrong: after it nothing can be won."""
    task = make_task(rollout.task)
    wrong = np.array([d.action for d in rollout.decisions]) != task.right
    return int((wrong & task.critical).argmax())


def failures(policy: Policy, most: int) -> Iterator[Trajectory]:
    """Failed rollouts, one a task."""
    found = 0
    for number in JUDGED:
        task = f"chain-{number}"
        group = collect_group(ChainEnv(task), policy, GroupRequest(task, 0, seed=1, env_seed=0, size=1))
        if group.mains[0].value == 0.0:
            yield group.mains[0]
            found += 1
        if found == most:
            return


def one_by_one(search: Search, steps: int) -> np.ndarray:
    """The belief after `EACH` continuations from every state."""
    answers = Answers.none(steps)
    for step in range(steps):
        for _ in range(EACH):
            answers = search.ask(answers, step)
    return posterior(answers)


def measure(updates: int, rollouts: int) -> dict[str, Any]:
    """Accuracy and forks of a policy after so many updates."""
    loop = chain_loop({"kind": "crr"}, seed=0)
    for _ in range(updates):
        loop.step()
    policy = make_policy("edit_scorer", loop.trainer.weights())
    right: dict[str, list[bool]] = {"search": [], "one_by_one": []}
    forks, blameless = [], []
    for rollout in failures(policy, rollouts):
        search = Search(ChainEnv(rollout.task), policy, rollout, seed=0)
        answers = search.searched(MOST)
        belief, truth = posterior(answers), lost(rollout)
        right["search"].append(int(belief.argmax()) == truth)
        right["one_by_one"].append(int(one_by_one(search, rollout.steps).argmax()) == truth)
        forks.append(answers.asked)
        blameless.append(int(belief.argmax()) == rollout.steps)
    shares = {name: vars(bootstrap(np.array(values, float))) for name, values in right.items()}
    return {
        "right": shares,
        "forks": {"search": float(np.median(forks)), "one_by_one": EACH * rollout.steps},
        "no_decision": float(np.mean(blameless)),
        "rollouts": len(forks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=100)
    parser.add_argument("--quick", action="store_true", help="20 rollouts, two policies")
    given = parser.parse_args()
    torch.set_num_threads(1)
    result = {}
    for updates in (25, 100) if given.quick else (0, 25, 50, 100):
        row = measure(updates, 20 if given.quick else given.rollouts)
        result[str(updates)] = row
        for name, share in row["right"].items():
            bounds = f"[{share['low']:.2f}, {share['high']:.2f}]"
            print(f"{updates:4d} updates  {name:10s} {share['estimate']:.2f} {bounds}  {row['forks'][name]:.0f} forks")
    print(json.dumps({"study": "attribution", "each": EACH, "by_updates": result}))


if __name__ == "__main__":
    main()
