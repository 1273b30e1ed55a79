"""Where a file says what each row led to: it must be what the next row shows."""

from __future__ import annotations

import numpy as np
from refork.replay.formats.rows import Rows, concat
from refork.replay.validation import Place


def check_following(rows: Rows, before: Rows | None, place: Place, column: str) -> None:
    """`before` is the row before these, if any. Raises BadInput at a next observation that is not the next row's.

    A learner that is fed the wrong next observations fails without a word.
    """
    if rows.following is None:
        return
    if before is not None:
        rows, place = concat(before, rows), place.after(-1)
    assert rows.following is not None
    within = rows.episode[1:] == rows.episode[:-1]
    led, seen = rows.following[:-1], rows.observations[1:]
    wrong = within[:, None] & (led != seen) & ~(np.isnan(led) & np.isnan(seen))
    if wrong.any():
        row, feature = (int(k) for k in np.argwhere(wrong)[0])
        expected = (
            f"{seen[row, feature]:g}, what the next row shows; rows are missing or shifted, or the episode ends here"
        )
        raise place.fault(row, f"{column}[{feature}]", f"{led[row, feature]:g}", expected)
