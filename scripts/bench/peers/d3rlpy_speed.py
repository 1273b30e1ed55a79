"""The other side of `offline_speed.py`: d3rlpy in an environment of its own, asked for one measurement a line.

It reads `ALGORITHM BATCH STEPS` from standard input, trains that many updates with `fit`, and answers with the
CPU-seconds as a JSON line. The log, as .npy files, lies in the folder named on the command line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import d3rlpy
import numpy as np
import structlog
import torch

ALGORITHMS = {"cql": d3rlpy.algos.DiscreteCQLConfig, "bcq": d3rlpy.algos.DiscreteBCQConfig}


def main() -> None:
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    data = _dataset(Path(sys.argv[1]))
    made: dict[tuple[str, str], Any] = {}
    print(json.dumps({"d3rlpy": d3rlpy.__version__, "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        name, batch, steps = line.split()
        if (name, batch) not in made:
            made[name, batch] = _algorithm(name, int(batch))
        start = time.process_time()
        made[name, batch].fit(
            data,
            n_steps=int(steps),
            n_steps_per_epoch=int(steps),
            logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
            show_progress=False,
        )
        print(json.dumps(time.process_time() - start), flush=True)


def _dataset(folder: Path) -> Any:
    arrays = {name: np.load(folder / f"{name}.npy") for name in ("observations", "actions", "rewards", "terminals")}
    return d3rlpy.dataset.MDPDataset(**arrays, action_space=d3rlpy.constants.ActionSpace.DISCRETE, action_size=25)


def _algorithm(name: str, batch: int) -> Any:
    encoder = d3rlpy.models.VectorEncoderFactory([256, 256])
    return ALGORITHMS[name](batch_size=batch, encoder_factory=encoder).create(device="cpu:0")


if __name__ == "__main__":
    main()
