"""A small file that follows a table of the broker: read at start, written soon after each change,
by a worker thread.

Thread rule: everything here runs on the loop thread, except encoding a snapshot and writing its
bytes, which the worker does, one step at a time; both threads may see snapshots. Changes during a
save share the next one. Crash rule: that of `common.atomic_file`; `when_saved` tells callers when a
change is on disk. A save that fails is logged, reported to its waiters, and retried until it
succeeds. Knows nothing of the file's content.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from orbitmq.common import atomic_file

RETRY_DELAY_S: Final = 1.0

T = TypeVar("T")
Encoder = Callable[[], bytes]
SavedCallback = Callable[[Exception | None], object]

log = logging.getLogger(__name__)


class Loop(Protocol):
    """The part of an event loop that is needed; asyncio's has it."""

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object]) -> object: ...


class SaveWatcher(Protocol):
    """Is notified on the loop thread, around each write, of the new content."""

    def before_write(self, content_digest: bytes) -> None:
        """Prepare for content with that digest; an OSError prevents the write."""
        ...

    def after_write(self, content_digest: bytes) -> None:
        """Note that the file has the content with that digest; must not raise."""
        ...


def digest(data: bytes) -> bytes:
    """Return a digest that identifies the content of a file."""
    return hashlib.blake2b(data, digest_size=16).digest()


class ConfigFile:
    """One file and its saves. `failure` is why the last save failed; None if it did not.

    `open` notes whether the backup was read, and whether there was a file without any content.
    """

    def __init__(self, path: Path, worker: Executor, loop: Loop) -> None:
        self.path = path
        self.failure: Exception | None = None
        self.is_from_backup = self.is_empty = False
        self._worker = worker
        self._loop = loop
        self._snapshot: Callable[[], Encoder] | None = None
        self._watcher: SaveWatcher | None = None
        self._is_changed = False  # since the snapshot of the current or last save
        self._pauses = False  # until the next attempt
        self._step: Future[Any] | None = None
        self._then: Callable[[Any], None] | None = None
        self._of_this_save: list[SavedCallback] = []
        self._of_next_save: list[SavedCallback] = []

    def open(
        self,
        decode: Callable[[bytes], T],
        snapshot: Callable[[], Encoder],
        watcher: SaveWatcher | None = None,
    ) -> tuple[T | None, bytes]:
        """Return the decoded content of the file, or of its backup, and its digest; None if there
        is neither.

        Every later save calls `snapshot` on the loop thread for the encoder that the worker calls.
        """
        self._snapshot, self._watcher = snapshot, watcher
        found = atomic_file.read_or_backup(self.path, lambda data: (decode(data), digest(data)))
        content = self.path.read_bytes() if self.path.exists() else None
        self.is_from_backup = found is not None and (content is None or digest(content) != found[1])
        self.is_empty = found is None and (
            content is not None or atomic_file.backup_path(self.path).exists()
        )
        return found or (None, digest(b""))

    def changed(self) -> None:
        """Save soon: now, or after the save under way."""
        self._is_changed = True
        self._start()

    def when_saved(self, callback: SavedCallback) -> None:
        """Call back when all changes so far are on disk, with None, or could not be saved, with the
        reason.
        """
        if self._is_changed:
            self._of_next_save.append(callback)
        elif self._step is not None:
            self._of_this_save.append(callback)
        else:
            callback(None)

    def save_now(self) -> None:
        """Save all changes before this returns; blocks. Raises if they cannot be saved."""
        self._pauses = False
        while True:
            self.failure = None
            self._start()
            if self._step is None:
                return
            wait([self._step])
            self._advance(self._step)
            if self.failure is not None:
                raise self.failure

    def abandon(self) -> None:
        """Write nothing more; the worker finishes its current step, without a notification."""
        self._step, self._is_changed = None, False

    def _start(self) -> None:
        if self._is_changed and self._step is None and not self._pauses:
            assert self._snapshot is not None, "open comes first"
            self._is_changed = False
            self._of_this_save, self._of_next_save = self._of_next_save, []
            self._submit(partial(_encoded, self._snapshot()), self._write)

    def _submit(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._then = then
        self._step = step = self._worker.submit(work)
        step.add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(partial(self._advance, done))
        )

    def _advance(self, step: Future[Any]) -> None:
        """Continue after a step of the worker; nothing is left to do if `save_now` did it."""
        if step is not self._step:
            return
        assert self._then is not None
        self._step = None
        try:
            result = step.result()
        except Exception as error:
            self._failed(error)
        else:
            self._then(result)

    def _write(self, encoded: tuple[bytes, bytes]) -> None:
        data, content_digest = encoded
        try:
            if self._watcher is not None:
                self._watcher.before_write(content_digest)
        except OSError as error:
            self._failed(error)
        else:
            self._submit(
                partial(_write_file, self.path, data), lambda _: self._written(content_digest)
            )

    def _written(self, content_digest: bytes) -> None:
        if self.failure is not None:
            log.info("config_saved_again file=%s", self.path)
        self.failure = None
        if self._watcher is not None:
            self._watcher.after_write(content_digest)
        self._notify(None)
        self._start()

    def _failed(self, error: Exception) -> None:
        log.error(
            "config_save_failed file=%s retry_s=%s reason=%r",
            self.path,
            RETRY_DELAY_S,
            error,
            exc_info=not isinstance(error, OSError),
        )
        self.failure = error
        self._is_changed = self._pauses = True
        self._notify(error)
        self._loop.call_later(RETRY_DELAY_S, self._resume)

    def _resume(self) -> None:
        self._pauses = False
        self._start()

    def _notify(self, failure: Exception | None) -> None:
        callbacks, self._of_this_save = self._of_this_save, []
        for callback in callbacks:
            callback(failure)


def _encoded(encoder: Encoder) -> tuple[bytes, bytes]:
    data = encoder()
    return data, digest(data)


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write(path, data)
