"""Keeps the manifest of queues and index near the end of the log: written at a clean stop, and now
and then while messages come in.

While the store runs, the states of all queues and index files are collected in slices, then the
next thorough flush syncs what they describe, then a worker writes the manifest. Queues are
collected at different moments: a state may have more entries than the manifest's log offset
requires, which does no harm.

An old manifest is not wrong: the next start only dispatches more of the log again. Thread rule: the
loop thread, except for encoding and writing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from orbitmq.store import queue_manifest
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.entry_queue import QueueState
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index import Index
from orbitmq.store.queue_manifest import IndexState, Manifest
from orbitmq.store.queue_proof import log_tail
from orbitmq.store.queues import Queues
from orbitmq.store.topic_lives import TopicLives
from orbitmq.store.types import LogOffset, QueueKey

_STRIDE: Final = 256 << 20  # bytes of the log between two manifests
_SLICE: Final = 1_000  # queues whose states are collected per slice
log = logging.getLogger(__name__)


class ManifestKeeper:
    """The manifest of one store; `dispatched` returns the log offset up to which queues are
    complete.
    """

    def __init__(
        self,
        layer: FileLayer,
        root: Path,
        commit_log: CommitLog,
        queues: Queues,
        index: Index | None,
        lives: TopicLives,
        *,
        dispatched: Callable[[], LogOffset],
        run_in_worker: Callable[[Callable[[], None]], Future[None]],
    ) -> None:
        self._layer = layer
        self._root = root
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._lives = lives
        self._dispatched = dispatched
        self._run_in_worker = run_in_worker
        self._written = LogOffset(0)  # of the last manifest
        self._is_wanted = False
        self._slices: Iterator[None] | None = None
        self._collected: Manifest | None = None  # complete, and not written yet
        self._needed_round = 0  # the thorough flush that must end before it is written
        self._needed_offset = LogOffset(0)  # and the log must be flushed up to here
        self._writing: tuple[LogOffset, Future[None]] | None = None

    def begin(self) -> None:
        """Start, once the store is open and dispatched: the next manifest is due after a stride, or
        once requested.
        """
        self._written = self._dispatched()

    def want(self) -> None:
        """Request a manifest soon: queues changed other than by growing."""
        self._is_wanted = True

    def tick(self, rounds_begun: int, rounds_ended: int) -> None:
        """Do the next step, given how many thorough flushes of the queues have begun, and
        succeeded.
        """
        if self._writing is not None:
            self._check_write(*self._writing)
        elif self._collected is not None:
            if (
                rounds_ended >= self._needed_round
                and self._log.flushed_offset >= self._needed_offset
            ):
                manifest, self._collected = self._collected, None
                work = partial(queue_manifest.write, self._layer, self._root, manifest)
                self._writing = manifest.log_offset, self._run_in_worker(work)
        elif self._slices is not None:
            if next(self._slices, self) is self:
                self._slices, self._needed_round = None, rounds_begun + 1
        elif self._is_wanted or self._dispatched() - self._written >= _STRIDE:
            self._is_wanted = False
            self._slices = self._collect()

    def write_now(self) -> None:
        """Write the manifest of synced queues, synchronously; OSError leaves the previous one.
        Blocks.
        """
        for _ in self._collect():
            pass
        assert self._collected is not None
        queue_manifest.write(self._layer, self._root, self._collected)

    def _check_write(self, offset: LogOffset, writing: Future[None]) -> None:
        if not writing.done():
            return
        self._writing = None
        if (error := writing.exception()) is None:
            self._written = offset
        else:
            log.warning("manifest_not_written error=%s, retrying", error)

    def _collect(self) -> Iterator[None]:
        offset = self._dispatched()
        tail = log_tail(self._log, offset)
        beginnings = self._lives.beginnings()
        topics = None if beginnings is None else dict(beginnings)
        states: list[dict[QueueKey, QueueState]] = []
        for folder in (self._queues.plain, self._queues.batch):
            found: dict[QueueKey, QueueState] = {}
            keys = iter(list(folder))
            while part := list(islice(keys, _SLICE)):
                found.update(
                    (key, state)
                    for key in part
                    if (state := folder.state_of(key)) is not None and state.entries.checksums
                )
                yield
            states.append(found)
        self._collected = Manifest(
            log_tail=tail,
            file_sizes=self._queues.file_sizes,
            topics=topics,
            plain=states[0],
            batch=states[1],
            index=(
                None if self._index is None else IndexState(self._index.shape, self._index.states)
            ),
        )
        self._needed_offset = self._dispatched()
