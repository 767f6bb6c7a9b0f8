"""A thread for what takes long with whole files: it makes the commit log's next file ahead of its time, and does what others hand in.

One thread, so one thing after the other. Making a file ahead is a courtesy: when it fails (a full disk), that is told once and tried again
after a while, and whoever needs the file before makes it himself. Thread rule: the loop thread calls everything here; what is handed in
runs on the worker and must know by itself what it may touch there.
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
    """The worker of one store; the thread is there from the first thing it has to do until `stop`."""

    def __init__(self, files: FileQueue) -> None:
        self._files = files
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="files")
        self._preparing: Future[None] | None = None
        self._prepare_at = 0  # the offset behind which the next file has to be prepared
        self._again_ms = 0  # not before that moment, after a failure
        self._is_failing = False

    def run(self, work: Callable[[], T]) -> Future[T]:
        """Have `work` done by the worker, behind what was handed in before."""
        return self._executor.submit(work)

    def prepare(self, now_ms: int) -> None:
        """Have the next file made, if more than half of the last one is used and that was not done; look at what became of it."""
        if self._preparing is not None and self._preparing.done():
            self._prepared(self._preparing, now_ms)
            self._preparing = None
        end, size = self._files.end_offset, self._files.file_size
        if self._preparing is None and end > self._prepare_at and end % size > size // 2 and now_ms >= self._again_ms:
            self._preparing = self.run(self._files.prepare_next)
            self._prepare_at = end - end % size + size

    def stop(self) -> None:
        """Finish what was handed in; the thread ends."""
        self._executor.shutdown()

    def _prepared(self, done: Future[None], now_ms: int) -> None:
        error = done.exception()
        if error is not None:
            self._prepare_at, self._again_ms = 0, now_ms + PREPARE_AGAIN_MS
            if not self._is_failing:
                log.error("next_file_not_prepared behind=%d error=%s again_ms=%d", self._files.end_offset, error, PREPARE_AGAIN_MS)
        elif self._is_failing:
            log.info("next_file_prepared_again")
        self._is_failing = error is not None
