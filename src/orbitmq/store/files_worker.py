"""A thread for slow work on whole files: creates the commit log's next file ahead of time, and runs
work submitted by others.

One thread, so one job after the other. Creating a file ahead is optional: a failure (a full disk)
is logged once and retried later, and a writer that needs the file first creates it. Thread rule:
the loop thread calls everything here; submitted work runs on the worker thread and is itself
responsible for what it touches there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from orbitmq.store.file_queue import FileQueue

PREPARE_AGAIN_MS = 5_000
T = TypeVar("T")
log = logging.getLogger(__name__)


class FilesWorker:
    """The worker of one store; its thread lives from the first job until `stop`."""

    def __init__(self, files: FileQueue) -> None:
        self._files = files
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._preparing: Future[None] | None = None
        self._prepare_at = 0  # prepare the next file when the end is beyond this
        self._again_ms = 0  # earliest retry after a failure
        self._is_failing = False

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Submit `work`; it runs after the work submitted before."""
        return self._executor.submit(work)

    def prepare(self, now_ms: int) -> None:
        """Create the next file in the background once more than half of the last one is used;
        collect the result of the previous attempt.
        """
        if self._preparing is not None and self._preparing.done():
            self._prepared(self._preparing, now_ms)
            self._preparing = None
        end, size = self._files.end_offset, self._files.file_size
        if (
            self._preparing is None
            and end > self._prepare_at
            and end % size > size // 2
            and now_ms >= self._again_ms
        ):
            self._preparing = self.run(self._files.prepare_next)
            self._prepare_at = end - end % size + size

    def stop(self) -> None:
        """Finish the submitted work and end the thread."""
        self._executor.shutdown()

    def _prepared(self, done: Future[None], now_ms: int) -> None:
        error = done.exception()
        if error is not None:
            self._prepare_at, self._again_ms = 0, now_ms + PREPARE_AGAIN_MS
            if not self._is_failing:
                log.error(
                    "next_file_not_prepared behind=%d error=%s again_ms=%d",
                    self._files.end_offset,
                    error,
                    PREPARE_AGAIN_MS,
                )
        elif self._is_failing:
            log.info("next_file_prepared_again")
        self._is_failing = error is not None
