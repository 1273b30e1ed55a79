"""Shows what `refork fork --attribute` found: the search, and a ranked table of decisions with what corrects them."""

from __future__ import annotations

from refork.replay.failure_search import Attribution, Correction
from rich.markup import escape
from rich.table import Table


def search_line(found: Attribution) -> str:
    """Where was gone back to, and what came of it."""
    answers = found.answers
    states = int((answers.successes + answers.failures > 0).sum())
    return (
        f"{escape(found.rollout.key)}: {found.rollout.steps} decisions, return {found.rollout.value:+.3f}; "
        f"{answers.asked} continuations from {states} of its states, {int(answers.successes.sum())} returned more; "
        f"{found.forks} forks in all"
    )


def verdict(found: Attribution) -> str:
    """In one sentence."""
    never = found.belief[-1]
    if not found.suspects:
        return (
            f"no decision lost it ({never:.2f} sure): this policy fails from the start as well; "
            "give a better one with --policy"
        )
    first = found.suspects[0]
    return f"decision {first.step} lost it ({first.belief:.2f} sure)"


def suspects_table(found: Attribution) -> Table:
    """The likeliest decision first; beside it the correction that returns most, and the others."""
    table = Table("rank", "decision", "belief", "taken", "best correction", "restores", "others tried")
    for rank, suspect in enumerate(found.suspects, 1):
        best, others = suspect.corrections[:1], suspect.corrections[1:]
        table.add_row(
            str(rank),
            str(suspect.step),
            f"{suspect.belief:.2f}",
            _named(suspect.action, suspect.label),
            "".join(_named(c.action, c.label) for c in best) or "none possible",
            "".join(_return(c) for c in best),
            "; ".join(f"{_named(c.action, c.label)}: {_return(c)}" for c in others),
        )
    return table


def _named(action: int, label: str) -> str:
    return f"{action} {escape(label)}" if label else str(action)


def _return(correction: Correction) -> str:
    return "not judged" if correction.value is None else f"{correction.value:+.2f} (n = {len(correction.values)})"
