"""The toy package that tests and benches share."""

from refork.scripts.bench.toy_tasks import BUGS, CLEAN, FAILING, NAMES, TESTS, flaky, toy_tasks

__all__ = ["BUGS", "CLEAN", "FAILING", "NAMES", "TESTS", "flaky", "toy_tasks"]
