"""The cluster of several nodes that tests and benches share."""

from refork.scripts.bench.hosts import REFORK, Hosts

__all__ = ["REFORK", "Hosts"]
