"""When to flush what: Apache's intervals and page counts.

Sans-IO: time comes in as `now_ms` (monotonic), progress as offsets, what is due goes out. With
SYNC_FLUSH the log is due whenever it is not fully flushed, even without waiters; with ASYNC_FLUSH
at each interval that finds enough dirty pages, and in any case when the thorough interval has
passed.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.store.config import PAGE_SIZE, FlushMode, StoreConfig


class FlushDue(NamedTuple):
    """What to flush now; `queues_pages_min` is how many dirty pages a queue must have to be
    flushed, None if queues are not due.
    """

    log: bool
    queues_pages_min: int | None
    checkpoint: bool


def dirty_pages(flushed_offset: int, end_offset: int) -> int:
    """Return how many pages begin between the flushed offset and the end, as Apache counts them."""
    return end_offset // PAGE_SIZE - flushed_offset // PAGE_SIZE


class FlushSchedule:
    """The times at which flushing is due; call `due` at `next_ms`, and whenever something was
    written. `config` may be replaced.
    """

    __slots__ = (
        "_checkpoint_ms",
        "_log_ms",
        "_log_thorough_ms",
        "_queues_ms",
        "_queues_thorough_ms",
        "config",
    )

    def __init__(self, config: StoreConfig, now_ms: int) -> None:
        self.config = config
        self._log_ms = now_ms + config.flush_log_interval_ms
        self._log_thorough_ms = now_ms + config.flush_log_thorough_interval_ms
        self._queues_ms = now_ms + config.flush_queues_interval_ms
        self._queues_thorough_ms = now_ms + config.flush_queues_thorough_interval_ms
        self._checkpoint_ms = now_ms + config.flush_checkpoint_interval_ms

    @property
    def next_ms(self) -> int:
        """When something may be due next, if nothing is written until then."""
        return min(self._log_ms, self._queues_ms, self._checkpoint_ms)

    def due(self, now_ms: int, flushed_offset: int, end_offset: int) -> FlushDue:
        """Return what is due at `now_ms`, given the log's offsets; it counts as done."""
        return FlushDue(
            self._log_due(now_ms, flushed_offset, end_offset),
            self._queues_due(now_ms),
            self._checkpoint_due(now_ms),
        )

    def _log_due(self, now_ms: int, flushed_offset: int, end_offset: int) -> bool:
        config = self.config
        on_time = now_ms >= self._log_ms
        if on_time:
            self._log_ms = now_ms + config.flush_log_interval_ms
        if flushed_offset >= end_offset:
            return False
        if config.flush_mode is FlushMode.SYNC:
            return True
        if not on_time:
            return False
        if now_ms >= self._log_thorough_ms:
            self._log_thorough_ms = now_ms + config.flush_log_thorough_interval_ms
            return True
        return dirty_pages(flushed_offset, end_offset) >= config.flush_log_pages_min

    def _queues_due(self, now_ms: int) -> int | None:
        if now_ms < self._queues_ms:
            return None
        self._queues_ms = now_ms + self.config.flush_queues_interval_ms
        if now_ms < self._queues_thorough_ms:
            return self.config.flush_queues_pages_min
        self._queues_thorough_ms = now_ms + self.config.flush_queues_thorough_interval_ms
        return 0

    def _checkpoint_due(self, now_ms: int) -> bool:
        if now_ms < self._checkpoint_ms:
            return False
        self._checkpoint_ms = now_ms + self.config.flush_checkpoint_interval_ms
        return True
