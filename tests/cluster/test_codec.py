"""State trees survive JSON and plain arrays to the bit; nothing that could run code is written or read."""

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from refork.cluster.codec import decode, encode


def _round_trip(tree: Any) -> Any:
    value, arrays = encode(tree)
    return decode(json.loads(json.dumps(value)), arrays)


def test_plain_values_come_back_with_their_types() -> None:
    tree = {"a": [1, 2.5, True, None, "x"], "b": (1, (2,)), 3: b"\x00\xff", ("k", 1): {}, "n": 2**200}
    back = _round_trip(tree)
    assert back == tree
    assert type(back["b"]) is tuple
    assert type(back["a"][2]) is bool


def test_floats_keep_every_bit() -> None:
    values = [0.1, 1e-320, float("inf"), -0.0, 1 / 3]
    assert [v.hex() for v in _round_trip(values)] == [v.hex() for v in values]
    assert np.isnan(_round_trip(float("nan")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8])
def test_tensors_keep_type_shape_and_bits(dtype: torch.dtype) -> None:
    tensor = (torch.arange(6).reshape(2, 3) % 2).to(dtype)
    back = _round_trip({"t": tensor})["t"]
    assert back.dtype == dtype
    assert back.shape == (2, 3)
    assert torch.equal(back, tensor)


def test_scalar_and_empty_tensors() -> None:
    back = _round_trip([torch.tensor(3.5), torch.zeros(0, 4)])
    assert back[0].shape == ()
    assert back[0].item() == 3.5
    assert back[1].shape == (0, 4)


def test_arrays_and_numpy_scalars() -> None:
    back = _round_trip({"a": np.arange(4, dtype=np.int16), "s": np.float32(0.5)})
    assert back["a"].dtype == np.int16
    assert back["a"].tolist() == [0, 1, 2, 3]
    assert type(back["s"]) is np.float32


def test_generator_states_go_on_where_they_were() -> None:
    python, numpy = random.Random(3), np.random.default_rng(3)
    saved = _round_trip(
        {"python": python.getstate(), "numpy": numpy.bit_generator.state, "torch": torch.get_rng_state()}
    )
    expected = python.random(), numpy.random()
    other, other_numpy = random.Random(), np.random.default_rng()
    other.setstate(saved["python"])
    other_numpy.bit_generator.state = saved["numpy"]
    assert (other.random(), other_numpy.random()) == expected


def test_optimiser_state_comes_back_whole() -> None:
    network = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(network.parameters(), 0.1)
    network(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    back = _round_trip(optimiser.state_dict())
    assert back["param_groups"] == optimiser.state_dict()["param_groups"]
    assert torch.equal(back["state"][0]["exp_avg"], optimiser.state_dict()["state"][0]["exp_avg"])


def test_what_cannot_be_held_is_named_with_its_place() -> None:
    with pytest.raises(TypeError, match=r"state/a/1: a checkpoint cannot hold a builtins\.object"):
        encode({"a": [1, object()]})


def test_unknown_tags_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown tag 'call'"):
        decode({"call": "os.system"}, {})
