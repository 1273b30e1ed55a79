"""`game.toml` of a user's own game."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refork.envs.forkable import BadInput
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.rules import BUDGET, NODE_RULES, SITE_RULES, WASTE_PRICE, Rule, Unit

WHOLE = {"levels": (3, 1), "horizon": (20, 1), "shelf_life": (0, 0)}
"""Whole numbers: default and least value."""
KNOWN = ("domain", *WHOLE, "budget", "waste_price", "service_unit", "money_unit", "ignore", "site", "node")


@dataclass(frozen=True)
class Settings:
    """Of one game; `budget` and `waste_price` in the game's units, `site` and `node` in the files'."""

    domain: str
    levels: int
    horizon: int
    shelf_life: int
    budget: tuple[float, ...] | None
    waste_price: float
    units: dict[Unit, float]
    """What the numbers in files are divided by."""
    ignore: tuple[str, ...]
    site: dict[str, Any]
    node: dict[str, Any]


def read_settings(path: Path) -> Settings:
    """Raises BadInput: file, key, what to do."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file; a folder with a game has one, it may be empty") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(f"{path}: cannot be read as TOML: {error}") from error
    _check_keys(f"{path}", data, KNOWN)
    for table, rules in (("site", SITE_RULES), ("node", NODE_RULES)):
        if not isinstance(data.setdefault(table, {}), dict):
            raise BadInput(f"{path}: {table} must be a table, [{table}]")
        _check_keys(f"{path}, [{table}]", data[table], tuple(rule.column for rule in rules))
    service, money = (_positive(path, data, name) for name in ("service_unit", "money_unit"))
    units: dict[Unit, float] = {"service": service, "money": money, "price": money / service}
    whole = {name: _whole(path, name, data.get(name, default), least) for name, (default, least) in WHOLE.items()}
    return Settings(
        domain=str(data.get("domain", "own")),
        **whole,
        budget=_budget(path, data, money),
        waste_price=checked(str(path), WASTE_PRICE, data.get("waste_price", 0.0)) / units[WASTE_PRICE.unit],
        units=units,
        ignore=_texts(path, data.get("ignore", [])),
        site=data["site"],
        node=data["node"],
    )


def _check_keys(where: str, data: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in data:
        if name not in known:
            raise BadInput(f"{where}: unknown key {name!r}; there are: {', '.join(known)}")


def _whole(path: Path, name: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise BadInput(f"{path}: {name} is {value!r}; it must be a whole number, at least {least}")
    return value


def _positive(path: Path, data: dict[str, Any], name: str) -> float:
    value = to_number(str(path), name, data.get(name, 1.0))
    if not 0 < value < float("inf"):
        raise BadInput(f"{path}: {name} is {value}; it must be a finite number above 0")
    return value


def _budget(path: Path, data: dict[str, Any], unit: float) -> tuple[float, ...] | None:
    value = data.get("budget")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise BadInput(f"{path}: budget is {value!r}; give two numbers, [demand, supply]")
    return tuple(
        checked(f"{path}, {side}", BUDGET, v) / unit for side, v in zip(("demand", "supply"), value, strict=True)
    )


def _texts(path: Path, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise BadInput(f"{path}: ignore is {value!r}; give a list of column names")
    return tuple(value)


def to_number(where: str, column: str, text: Any) -> float:
    """Raises BadInput."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise BadInput(f"{where}: {column} is {text!r}, not a number; give one, with a point for decimals") from None


def checked(where: str, rule: Rule, text: Any) -> float:
    """The number, in the file's units. Raises BadInput where the rule refuses it."""
    value = to_number(where, rule.column, text)
    if fault := rule.fault(value):
        raise BadInput(f"{where}: {fault}")
    return value


def write_settings(path: Path, instance: Instance) -> None:
    """`game.toml` of an instance; node attributes stand in its other files."""
    budget = ", ".join(repr(float(b)) for b in instance.budget)
    whole = "".join(f"{name} = {getattr(instance, name)}\n" for name in WHOLE)
    path.write_text(
        f"domain = {json.dumps(instance.domain)}\n{whole}budget = [{budget}]\n"
        f"waste_price = {float(instance.waste_price)!r}\n"
    )
