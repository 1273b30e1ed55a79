"""CPU time of the counterfactual sweep, all n * A joint actions in one pass against a loop over decision makers.

Forward and backward of mean logsumexp_{a_i} Q_tot(s, a_i, a_D^{-i}) at batch 256, with both backbones. `one pass` is
what the trainers do; `loop` asks the same Q_tot for each decision maker's A joint actions in turn, with the backward
pass of their sum. The last line is JSON: how many times longer the loop takes, by backbone and n.

    python scripts/bench/sweep.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch
from refork.agents.joint_q import CentralQ, MonotonicQ, MonotonicView, OneHotView
from refork.agents.q_networks import LogNetworks, LogShape
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec
from torch import Tensor, nn

BATCH, MOVES = 256, 11
View = MonotonicView | OneHotView


def networks(n: int) -> LogNetworks:
    """As for Equal Line of `n` agents, two layers of 64."""
    spec = LogSpec("", ObservationSpec("vector", n), ActionSpec("discrete", (MOVES,) * n), "units")
    return LogNetworks(LogShape(spec, np.zeros(n, np.float32), np.ones(n, np.float32)), (64, 64), seed=0)


def backbone(name: str, n: int) -> tuple[nn.Module, Callable[[], View]]:
    """The network, and a fresh look at a batch of states."""
    factory, seen = networks(n), torch.randn(1, BATCH, n)
    if name == "monotonic":
        monotonic = MonotonicQ(factory, 1, purpose=0)
        return monotonic, lambda: monotonic.at(seen.expand(n, -1, -1), seen)
    central = CentralQ(factory, 1, purpose=0)
    return central, lambda: OneHotView(central.at(seen))


def one_pass(view: View, actions: Tensor) -> Tensor:
    return torch.logsumexp(view.sweep(actions), -1).mean()


def loop(view: View, actions: Tensor) -> Tensor:
    n = actions.shape[-1]
    every = torch.arange(MOVES).expand(1, BATCH, MOVES)
    sums = []
    for i in range(n):
        joint = actions[:, :, None].repeat(1, 1, MOVES, 1)  # (1, B, A, n)
        joint[..., i] = every
        sums.append(torch.logsumexp(view.of(joint), -1))
    return torch.stack(sums).mean()


def seconds(
    network: nn.Module, way: Callable[[View, Tensor], Tensor], look: Callable[[], View], actions: Tensor
) -> float:
    """CPU time of a forward and backward pass."""
    begun = time.process_time()
    torch.autograd.grad(way(look(), actions), list(network.parameters()), allow_unused=True)
    return time.process_time() - begun


def compare(name: str, n: int, repeats: int) -> float:
    """How many times longer the loop takes: the ratio of medians, the two timed in turn."""
    torch.manual_seed(0)
    network, look = backbone(name, n)
    actions = torch.randint(MOVES, (1, BATCH, n))
    torch.testing.assert_close(one_pass(look(), actions), loop(look(), actions), rtol=1e-4, atol=1e-4)
    ways = (one_pass, loop)
    spent = [[seconds(network, way, look, actions) for way in ways] for _ in range(repeats)]
    batched, looped = np.median(spent, 0)
    print(f"{name:9} n={n:2}: one pass {batched * 1e3:6.2f} ms, loop {looped * 1e3:6.2f} ms, {looped / batched:.2f}x")
    return round(float(looped / batched), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="n = 2 and 5, few repeats")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    sizes, repeats = ((2, 5), 7) if quick else ((2, 3, 5, 8, 10), 25)
    ratios = {f"{name}_{n}": compare(name, n, repeats) for name in ("monotonic", "central") for n in sizes}
    print(json.dumps(ratios))


if __name__ == "__main__":
    main()
