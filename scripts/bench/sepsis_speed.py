"""Steps per CPU-second of the sepsis simulators, against the environment that the package `icu-sepsis` ships.

The package's environment is stepped as its users do, one patient at a time, by the expert's policy (its draw of an
action is not counted). Ours writes whole logs: `log`, contiguous arrays of 20,000 patients under the same policy,
actions drawn and recorded; `single`: the forkable environment of one patient. Alternated, best of several turns. The
last line is JSON.

    python scripts/bench/sepsis_speed.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable

import numpy as np
from refork.envs.clinical.icu_sepsis import ACTIONS, IcuSepsis
from refork.envs.clinical.sepsis_scm import SepsisScm
from refork.envs.registry import make_env


def package(steps: int) -> Callable[[], float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from icu_sepsis.envs.sepsis import ICUSepsisEnv  # type: ignore[import-untyped]
    env, policy = ICUSepsisEnv(), IcuSepsis().table("expert")

    def measure() -> float:
        rng = np.random.default_rng(0)
        spent, state = 0.0, env.reset(seed=0)[0]
        for _ in range(steps):
            action = divmod(int(rng.choice(ACTIONS, p=policy[state])), 5)
            begun = time.process_time()
            state, _, ended, _, _ = env.step(action)
            if ended:
                state, _ = env.reset()
            spent += time.process_time() - begun
        return steps / spent

    return measure


def single(env_id: str, steps: int, actions: int) -> Callable[[], float]:
    env = make_env(env_id, task="any")

    def measure() -> float:
        chosen = np.random.default_rng(0).integers(actions, size=steps)
        env.reset(seed=0)
        begun = time.process_time()
        for action in chosen:
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps / (time.process_time() - begun)

    return measure


def logs(simulator: IcuSepsis | SepsisScm, behaviour: str, patients: int) -> Callable[[], float]:
    simulator.log(behaviour, 1, 0)  # builds its tables

    def measure() -> float:
        begun = time.process_time()
        log = simulator.log(behaviour, patients, 0)
        return len(log.rewards) / (time.process_time() - begun)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps and turns")
    quick = parser.parse_args().quick
    steps, patients = (2_000, 5_000) if quick else (20_000, 20_000)
    measures = {
        "package": package(steps),
        "icu_log": logs(IcuSepsis(), "expert", patients),
        "icu_single": single("refork/IcuSepsis-v0", steps, ACTIONS),
        "scm_log": logs(SepsisScm(), "softened", patients),
        "scm_single": single("refork/SepsisSCM-v0", steps, 8),
    }
    turns = [{name: measure() for name, measure in measures.items()} for _ in range(2 if quick else 5)]
    best = {name: max(turn[name] for turn in turns) for name in measures}
    for name, speed in best.items():
        print(f"{name}: {speed:,.0f} steps per CPU-second")
    print(
        json.dumps(
            {
                "steps_per_cpu_s": {name: round(speed) for name, speed in best.items()},
                "icu_log_ratio": round(best["icu_log"] / best["package"], 1),
                "icu_single_ratio": round(best["icu_single"] / best["package"], 2),
            }
        )
    )


if __name__ == "__main__":
    main()
