"""What no policy can exceed: the joint play of a game as one program over all rounds, relaxed or exact.

Levels per round are monotone variables, at most one more per operator and round; flows per pair and round keep every
limit of the game, but are chosen freely, so the program is worth at least what any play under any clearing earns.
Relaxed, levels are real numbers; inequalities that hold for whole levels keep that tight: what a site or node lets
through is below the concave hull of min(limit, capacity x level) over whole levels (mixed-integer rounding); pools and
knees hold for each build; no more builds are made than the cheapest that the budget pays for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from refork.envs.graph_game.instance import Instance
from refork.envs.graph_game.program import Program, Term

SLACK = 1e-9


@dataclass(frozen=True)
class JointProgram:
    """The program, and where the levels are in it."""

    program: Program
    site_level: np.ndarray
    """(T, N) variables."""
    node_level: np.ndarray
    """(T, M)"""


def joint_program(
    instance: Instance,
    demand: np.ndarray | None,
    weights: tuple[float, float],
    fixed: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
) -> JointProgram:
    """The program of the payoffs, weighted by operator, under `demand` (T, N), None: the instance's.

    `fixed` levels (T, N) or (T, M) are given, not chosen.
    """
    program, horizon = Program(), instance.horizon
    demand = instance.demand if demand is None else demand
    site_cap, node_cap = _caps(instance, demand)
    # income per unit sits on what sites are served and nodes let through
    served = program.variables(site_cap.shape, gain=weights[0] * instance.price, upper=site_cap)
    through = program.variables(node_cap.shape, gain=weights[1] * instance.tariff, upper=node_cap)
    flow = program.variables((horizon, len(instance.pairs)))
    _balance(program, served, flow, instance.pairs[:, 0])
    _balance(program, through, flow, instance.pairs[:, 1])
    _networks(program, instance, served, through)
    costs = (weights[0] * instance.site_capital, weights[0] * instance.site_upkeep)
    site_level = _levels(program, instance, costs, horizon, fixed[0])
    _hull(program, served, site_level, site_cap, instance.site_capacity, instance.levels)
    _site_totals(program, instance, weights[0], served, site_level, site_cap)
    costs = (weights[1] * instance.node_capital, weights[1] * instance.node_upkeep)
    node_level = _levels(program, instance, costs, horizon, fixed[1])
    starts = np.flatnonzero(instance.node_start > 0)
    started = program.variables(starts.shape, gain=-weights[1] * instance.node_start[starts], upper=1.0, whole=True)
    program.at_most([(1.0, node_level[-1, starts]), (-instance.levels, started)], 0.0, started.shape)
    program.at_most([(1.0, through[:, starts]), (-node_cap[:, starts], started)], 0.0, through[:, starts].shape)
    if instance.shelf_life:
        _stock(program, instance, through, node_level, weights[1])
    else:
        _hull(program, through, node_level, node_cap, instance.node_capacity, instance.levels)
    _take_or_pay(program, instance, through, node_level, weights[1])
    if fixed[0] is None:
        _budget(program, instance, 0, site_level[-1])
    if fixed[1] is None:
        _budget(program, instance, 1, node_level[-1], (instance.node_start[starts], started))
    return JointProgram(program, site_level, node_level)


def _caps(instance: Instance, demand: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Most that a site (T, N) and a node (T, M) can let through in a round, at the highest levels of all."""
    site = np.minimum(np.minimum(demand, instance.pool), instance.levels * instance.site_capacity)
    road = np.full(instance.sites, np.inf)
    for end in (0, 1):
        np.minimum.at(road, instance.roads[:, end], instance.road_limit)
    site = np.minimum(site, road)
    node = np.full(instance.nodes, np.inf)
    np.minimum.at(node, instance.row_node, instance.row_limit[instance.row_index] / instance.row_coefficient)
    held = instance.levels * instance.node_capacity * max(1, instance.shelf_life)
    node = np.minimum(node, held)
    reach = np.stack([np.bincount(instance.pairs[:, 1], s[instance.pairs[:, 0]], instance.nodes) for s in site])
    fed = np.bincount(instance.pairs[:, 0], node[instance.pairs[:, 1]], instance.sites)
    return np.maximum(0.0, np.minimum(site, fed)), np.maximum(0.0, np.minimum(reach, node))


def _balance(program: Program, total: np.ndarray, flow: np.ndarray, end: np.ndarray) -> None:
    """total (T, n) = the sum of the flows (T, P) that end there."""
    rows = program.at_most([(1.0, total)], 0.0, total.shape, equal=True)
    program.add_to_rows(rows[:, end], -1.0, flow)


def _networks(program: Program, instance: Instance, served: np.ndarray, through: np.ndarray) -> None:
    """Roads, and rows of the supply network."""
    ends = served[:, instance.roads]  # (T, E, 2)
    program.at_most([(1.0, ends[..., 0]), (1.0, ends[..., 1])], instance.road_limit, ends.shape[:2])
    rows = program.at_most([], instance.row_limit, (instance.horizon, len(instance.row_limit)))
    program.add_to_rows(rows[:, instance.row_index], instance.row_coefficient, through[:, instance.row_node])


def _site_totals(
    program: Program,
    instance: Instance,
    weight: float,
    served: np.ndarray,
    level: np.ndarray,
    cap: np.ndarray,
) -> None:
    """Pools, and the lower price beyond the knee, over the whole game.

    Both also hold for each build: a level built in round s lets through at most min(limit, what it can from s on), so
    the total is below the sum of that over the builds. A small part of a level does not earn the full price for long.
    """
    alone = np.minimum(cap, instance.site_capacity)
    ahead = np.cumsum(alone[::-1], 0)[::-1]  # (T, N): what one level built in that round can serve to the end
    loss = weight * (instance.price - instance.late_price)
    for limit, loss_beyond in ((instance.pool, None), (instance.knee, loss)):
        chosen = np.flatnonzero(np.isfinite(limit))
        if not len(chosen):
            continue
        total = program.at_most([], limit[chosen], (len(chosen),))
        by_builds = program.at_most([], 0.0, (len(chosen),))
        gain = np.minimum(limit, ahead)[:, chosen]
        program.add_to_rows(by_builds, -(gain - np.append(gain[1:], 0 * gain[:1], 0)), level[:, chosen])
        beyond = None if loss_beyond is None else program.variables((len(chosen),), gain=-loss_beyond[chosen])
        for block in (total, by_builds):
            program.add_to_rows(block, 1.0, served[:, chosen])
            if beyond is not None:
                program.add_to_rows(block, -1.0, beyond)


def _levels(
    program: Program,
    instance: Instance,
    costs: tuple[np.ndarray, np.ndarray],
    horizon: int,
    fixed: np.ndarray | None,
) -> np.ndarray:
    """Level variables (T, n) of one operator with its capital and upkeep per level: monotone, one build a round."""
    capital, upkeep = costs
    gain = np.repeat(-upkeep[None], horizon, 0)
    gain[-1] -= capital  # paid once for every level there is at the end
    if fixed is not None:
        return program.variables(gain.shape, gain=gain, lower=fixed, upper=fixed)
    level = program.variables(gain.shape, gain=gain, upper=instance.levels, whole=True)
    program.at_most([(1.0, level[:-1]), (-1.0, level[1:])], 0.0, level[1:].shape)
    rows = program.at_most([], 1.0, (horizon,))
    program.add_to_rows(rows[:, None], 1.0, level)
    program.add_to_rows(rows[1:, None], -1.0, level[:-1])
    return level


def _hull(
    program: Program, used: np.ndarray, level: np.ndarray, cap: np.ndarray, capacity: np.ndarray, levels: int
) -> None:
    """used (T, n) below capacity x level, and below the line between the two whole levels around the cap."""
    program.at_most([(1.0, used), (-capacity, level)], 0.0, used.shape)
    whole = np.floor(cap / np.maximum(capacity, SLACK) + SLACK)
    rest = np.maximum(0.0, cap - whole * capacity)
    chosen = (rest > SLACK) & (whole >= 1) & (whole < levels)
    wide = np.broadcast_to(capacity, cap.shape)[chosen]
    k, r = whole[chosen], rest[chosen]
    program.at_most([(1.0, used[chosen]), (-r, level[chosen])], k * (wide - r), k.shape)
    small = (whole == 0) & (rest > SLACK)
    program.at_most([(1.0, used[small]), (-cap[small], level[small])], 0.0, (int(small.sum()),))


def _stock(program: Program, instance: Instance, through: np.ndarray, level: np.ndarray, weight: float) -> None:
    """Doses of a round keep `shelf_life` rounds; what is not used by then, or at the end, is waste.

    With a, u, w allotted, used and expired up to and in round t: u_t + w_t <= a_t, and what came by t - S + 1 is used
    or expired. All that came is used or expired at the end, so waste is priced at a_T - u_T.
    """
    used, allotted = _running(program, through), _running(program, level)
    price = weight * instance.waste_price
    expired = program.variables(through.shape)
    capacity, old = instance.node_capacity, instance.shelf_life - 1
    program.at_most([(1.0, expired[:-1]), (-1.0, expired[1:])], 0.0, expired[1:].shape)
    program.at_most([(1.0, used), (1.0, expired), (-capacity, allotted)], 0.0, used.shape)
    before = allotted[: instance.horizon - old]
    program.at_most([(capacity, before), (-1.0, used[old:]), (-1.0, expired[old:])], 0.0, before.shape)
    waste = program.variables((instance.nodes,), gain=-price)
    program.at_most([(capacity, allotted[-1]), (-1.0, used[-1]), (-1.0, waste)], 0.0, waste.shape)


def _running(program: Program, amount: np.ndarray) -> np.ndarray:
    """Variables (T, n): the sums of `amount` (T, n) up to each round."""
    total = program.variables(amount.shape)
    rows = program.at_most([(1.0, total), (-1.0, amount)], 0.0, total.shape, equal=True)
    program.add_to_rows(rows[1:], -1.0, total[:-1])
    return total


def _take_or_pay(program: Program, instance: Instance, through: np.ndarray, level: np.ndarray, weight: float) -> None:
    chosen = np.flatnonzero(instance.take * instance.take_price > 0)
    short = program.variables((instance.horizon, len(chosen)), gain=-weight * instance.take_price[chosen])
    terms: list[Term] = [(instance.take[chosen], level[:, chosen]), (-1.0, through[:, chosen]), (-1.0, short)]
    program.at_most(terms, 0.0, short.shape)


def _budget(program: Program, instance: Instance, operator: int, level: np.ndarray, starts: Term | None = None) -> None:
    """Capital of the last levels (n,) and starts; and no more builds than the cheapest that the budget pays for."""
    capital = instance.node_capital if operator else instance.site_capital
    budget = instance.budget[operator] * (1 + SLACK)
    spent = program.at_most([], budget, (1,))
    program.add_to_rows(spent, capital, level)
    if starts is not None:
        program.add_to_rows(spent, *starts)
    affordable = np.cumsum(np.sort(np.repeat(capital, instance.levels))) <= budget
    builds = program.at_most([], float(affordable.sum()), (1,))
    program.add_to_rows(builds, 1.0, level)
