"""What the numbers of a game may be, and what they are where a user's files leave them out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Unit = Literal["service", "price", "money"]


@dataclass(frozen=True)
class Rule:
    """Of one attribute of sites or of supply nodes. All are at least 0."""

    column: str
    """Its name in files."""
    field: str
    """Its name in an Instance."""
    default: float
    unit: Unit
    positive: bool = False
    """0 is refused too."""
    infinite: bool = False
    """Infinity is allowed."""

    def fault(self, value: float) -> str | None:
        """What is wrong with `value` and what to do, None when nothing is."""
        if math.isnan(value) or (math.isinf(value) and not (self.infinite and value > 0)):
            return f"{self.column} is {value}; give a {'number or inf' if self.infinite else 'finite number'}"
        if value < 0 or (self.positive and value == 0):
            return f"{self.column} is {value:g}; it must be {'above' if self.positive else 'at least'} 0"
        return None


SITE_RULES = (
    Rule("demand", "demand", 1.8, "service"),
    Rule("price", "price", 1.0, "price"),
    Rule("late_price", "late_price", 0.0, "price"),
    Rule("knee", "knee", math.inf, "service", infinite=True),
    Rule("pool", "pool", math.inf, "service", infinite=True),
    Rule("capacity", "site_capacity", 1.0, "service"),
    Rule("capital", "site_capital", 2.2, "money", positive=True),
    Rule("upkeep", "site_upkeep", 0.06, "money"),
)
NODE_RULES = (
    Rule("tariff", "tariff", 0.6, "price"),
    Rule("capacity", "node_capacity", 1.3, "service"),
    Rule("capital", "node_capital", 3.5, "money", positive=True),
    Rule("start", "node_start", 0.0, "money"),
    Rule("upkeep", "node_upkeep", 0.08, "money"),
    Rule("take", "take", 0.0, "service"),
    Rule("take_price", "take_price", 0.0, "price"),
)
"""Defaults are the means of the generated games."""

LIMIT = Rule("limit", "road_limit", math.inf, "service", positive=True)
COEFFICIENT = Rule("coefficient", "row_coefficient", 1.0, "service", positive=True)
BUDGET = Rule("budget", "budget", math.nan, "money", positive=True)
WASTE_PRICE = Rule("waste_price", "waste_price", 0.0, "price")
