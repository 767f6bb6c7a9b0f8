"""Limits the send rate of a task by handing out its rows in portions.

Time in which no rows were requested is not made up for: a target that was slow for a while is not
flooded afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PORTIONS_PER_S: Final = 10


def rows_per_portion(rows_per_s: int) -> int:
    """Return the number of rows in a portion."""
    return max(1, rows_per_s // _PORTIONS_PER_S)


def limit_rate(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: int | None,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Return the same rows in portions, each when it is due; without a rate, the batches
    unchanged.
    """
    if rows_per_s is None:
        yield from batches
        return
    due_s, size = now_s(), rows_per_portion(rows_per_s)
    for batch in batches:
        for first in range(0, batch.num_rows, size):
            rows = batch.slice(first, size)
            if (wait_s := due_s - now_s()) > 0:
                sleep(wait_s)
            due_s = max(due_s, now_s()) + rows.num_rows / rows_per_s
            yield rows
