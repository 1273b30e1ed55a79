"""Failure labels at their thresholds."""

import pytest
from refork.trainers.failures import Signs, failure


@pytest.mark.parametrize(
    ("signs", "label"),
    [
        (Signs(0.9, 0.4, 0.1), "none"),
        (Signs(float("nan"), 0.4, 0.1), "divergence"),
        (Signs(-0.01, 0.94, 0.1), "divergence"),
        (Signs(-0.01, 0.95, 0.1), "stagnation"),
        (Signs(0.0, 1.0, 0.0), "stagnation"),
        (Signs(0.44, 0.4, 0.1, 0.9), "collapse"),
        (Signs(0.45, 0.4, 0.1, 0.9), "none"),
        (Signs(0.19, 0.4, 0.51), "mis-coordination"),
        (Signs(0.19, 0.4, 0.5), "none"),
        (Signs(0.2, 0.4, 0.9), "none"),
        (Signs(0.1, 0.4, 0.9, 0.9), "collapse"),
        (Signs(0.0, 0.5, 0.0, -0.2), "none"),
    ],
)
def test_labels(signs: Signs, label: str) -> None:
    assert failure(signs) == label
