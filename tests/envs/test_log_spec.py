"""The description of a log, as JSON and back."""

import json
from typing import Any

import pytest
from refork.envs.forkable import BadInput
from refork.envs.log_spec import ActionSpec, LogSpec, ObservationSpec

ACTION = ActionSpec("continuous", (2, 2), ("a", "b"), low=(-1.0, 0.0), high=(1.0, 2.0))
SPEC = LogSpec("x", ObservationSpec("vector", 2, ("u", "v"), per_agent=True), ACTION, "a reward", horizon=5, gamma=0.9)


def test_it_comes_back_as_it_was() -> None:
    assert LogSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": "abc"}, "observation: "),
        ({"observation": {"kind": "pixels", "size": 2}}, "observation.kind: Input should be 'vector' or 'states'"),
        ({"observation": {"kind": "vector"}}, "observation.size: "),
        ({"action": {"kind": "discrete", "sizes": "abc"}}, "action.sizes: "),
        ({"horizon": "soon"}, "horizon: "),
        ({"gamma": None}, "gamma: "),
        ({"colour": 1}, "colour: "),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=f"the description of the log: {message}"):
        LogSpec.from_json({**SPEC.to_json(), **changes})
