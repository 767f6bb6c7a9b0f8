"""The message store: builds log, queues, index and their maintenance, and opens and closes them in
order.

Messages go in through `append` and `commit`, or `put`, which is both; on a slave, bytes of the
master's log through `receive`. `reads` returns messages; `tick` does the periodic work. With
SYNC_FLUSH a message enters its queue once it is flushed, so that no consumer reads what a power
failure could undo; with ASYNC_FLUSH at once.

Thread rule: one thread, except for the flush threads and the files worker inside. Crash rule:
`abort` exists while the store is open, and stays if it could not be closed with everything on disk;
the next `open` recovers a store that was not closed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial

from orbitmq.common.clock import Clock
from orbitmq.common.errors import (
    NotEnoughReplicasError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    WriteFailedError,
    os_error_text,
    reason_of,
)
from orbitmq.common.mem import Buffer
from orbitmq.message.record_write import MessageRecord
from orbitmq.store import queue_manifest
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.dispatch import Dispatcher, FilterBits
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.flush.coordinator import Flushing, MakeFlusher, Waiter
from orbitmq.store.flush.fsync_thread import Flusher
from orbitmq.store.flush.replica_acks import NO_REPLICAS, ReplicaAcks
from orbitmq.store.index import Index
from orbitmq.store.index_proof import IndexProof
from orbitmq.store.log_batch import Appended
from orbitmq.store.manifest_keeper import ManifestKeeper
from orbitmq.store.quarantine import Quarantine
from orbitmq.store.queue_manifest import Manifest
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.queue_proof import QueueProof
from orbitmq.store.queue_retention import NO_RULES, RetentionRules
from orbitmq.store.queues import Queues
from orbitmq.store.reads import Reads
from orbitmq.store.recovery import ProgressListener, ProgressLog, Recovered, Recovery
from orbitmq.store.retention import Retention
from orbitmq.store.store_lock import AbortMark, StoreLock
from orbitmq.store.topic_lives import AnyTopic, TopicLives
from orbitmq.store.types import LogOffset

_NEVER = (1 << 63) - 1  # a log offset beyond all records
_IS_SLAVE = "this broker is a slave: messages are sent to its master"
log = logging.getLogger(__name__)


class MessageStore:
    """One store folder. `notify` is called on another thread when `tick` should be called soon."""

    def __init__(
        self,
        layer: FileLayer,
        clock: Clock,
        config: StoreConfig,
        store_host: bytes,
        notify: Callable[[], object] | None = None,
        *,
        lives: TopicLives | None = None,
        retention_rules: RetentionRules = NO_RULES,
        filter_bits: FilterBits | None = None,
        make_flusher: MakeFlusher = Flusher,
        replicas: ReplicaAcks = NO_REPLICAS,
    ) -> None:
        self.config = config
        self.replicas = replicas
        self._growth_listeners: list[Callable[[], None]] = []
        self._layer = layer
        self._lives = lives or AnyTopic()
        # Set while queues may lack records of the log: at start, and while a full disk prevents it.
        self._proof: QueueProof | None = None
        self.unclean_reason: str | None = None  # why `close` left the `abort` mark
        self._clock = clock
        self._is_sync = config.flush_mode is FlushMode.SYNC
        self._lock = StoreLock(layer, config.root)
        self._abort = AbortMark(layer, config.root)
        self._dispatch_failure: str | None = None
        self.log_write_ms = 0  # total time of log writes
        self.checkpoint = Checkpoint(layer, config.root / "checkpoint")
        self.quarantine = Quarantine()
        self.log = CommitLog(layer, config, store_host, QueueOffsets(self._next_offset))
        self.queues = Queues(
            layer,
            config.root,
            file_size=config.queue_file_size,
            ext_file_size=config.queue_ext_file_size,
            batch_file_size=config.batch_queue_file_size,
            open_files_max=config.open_queue_files_max,
            begin_of=self._begin_of,
        )
        self.index = (
            Index(layer, config.root / "index", clock, config.index_shape)
            if config.index_enabled
            else None
        )
        self.dispatcher = Dispatcher(
            self.log,
            self.queues,
            self.index,
            self.quarantine,
            delay_levels_ms=config.delay_levels_ms,
            filter_bits=filter_bits,
        )
        self.reads = Reads(
            self.log, self.queues, self.index, config, self.quarantine, memory_size=_memory_size()
        )
        self.flushing = Flushing(
            layer,
            config,
            self.log,
            self.queues,
            self.index,
            self.checkpoint,
            lambda: (self.dispatcher.offset, self.dispatcher.store_time_ms),
            clock.monotonic_ms,
            notify,
            flushed=self._log_flushed,
            make_flusher=make_flusher,
            replicas=replicas,
        )
        self.manifest = ManifestKeeper(
            layer,
            config.root,
            self.log,
            self.queues,
            self.index,
            self._lives,
            dispatched=lambda: self.dispatcher.offset,
            run_in_worker=self.flushing.run_in_worker,
        )
        self.retention = Retention(
            layer,
            config,
            self.log,
            self.queues,
            self.index,
            self.quarantine,
            rules=retention_rules,
            worker=self.flushing.run_in_worker,
            needed_from=lambda: self.dispatcher.offset,
        )

    def follow(self, config: StoreConfig) -> None:
        """Apply new limits, intervals and retention, which may change while the store is open; the
        rest of `config` must be the same.
        """
        self.config = self.retention.config = config
        for part in (self.log, self.reads, self.flushing):
            part.follow(config)

    # -- life

    def open(self, progress: ProgressListener | None = None) -> Recovered:
        """Lock the folder, load and recover; StoreError if that fails, and nothing stays locked or
        open.

        `progress` is called during a long recovery; by default it is logged.
        """
        try:
            self._lock.acquire()
            recovered = self._recover(progress)
            self._abort.set()
            self.flushing.start()
        except OSError as error:
            self._release()
            raise StoreError(
                f"the store {self.config.root} could not be opened: {os_error_text(error)}"
            ) from error
        except BaseException:
            self._release()
            raise
        return recovered

    def close(self) -> None:
        """Make everything durable, mark the stop as clean, and unlock the folder; failures of the
        disk are logged.
        """
        self.log.discard()
        try:
            if self._is_sync:
                self.flushing.flush_log()
            self._dispatch()
            self.flushing.stop()
            reason = (
                self.log.read_only_reason
                or self.flushing.derived_unsafe_reason
                or self._dispatch_failure
            )
            if reason is None:
                self._write_manifest()
                self._abort.clear()
            else:
                self._stopped_unclean(reason)
        except (OSError, StoreError) as error:
            self._stopped_unclean(str(error))
        finally:
            self._release()

    def abandon(self) -> None:
        """Close the files as they are, as the end of the process would; `abort` stays."""
        try:
            self.flushing.abandon()
        finally:
            self._release()

    def _stopped_unclean(self, reason: str) -> None:
        self.unclean_reason = reason
        log.error("stopped_unclean reason=%s", reason)

    def _write_manifest(self) -> None:
        """Write the manifest; without it the next start only scans more of the log."""
        try:
            self.manifest.write_now()
        except OSError as error:
            log.warning("manifest_not_written error=%s: the next start takes longer", error)

    def _recover(self, progress: ProgressListener | None) -> Recovered:
        self._lives.load()
        clean = not self._abort.is_set()
        self.log.load()
        self.queues.load()
        self.checkpoint.load()
        manifest = queue_manifest.read(self._layer, self.config.root)
        recovery = Recovery(
            self.log,
            self.queues,
            self.checkpoint,
            self.dispatcher,
            self.quarantine,
            self._clock,
            partial(self._begin_proofs, manifest),
            manifest,
            truncate_damage=self.config.truncate_damage,
            listener=progress or ProgressLog(self._clock.monotonic_ms),
        )
        recovered = recovery.run(clean=clean)
        self.reads.is_behind = True
        if recovery.dispatch_failure is None:
            self._dispatch()
        else:
            self._dispatch_failed(recovery.dispatch_failure)
        if (
            recovered.queues_rebuilt
            or recovered.is_index_rebuilt
            or not queue_manifest.exists(self._layer, self.config.root)
        ):
            self.manifest.want()
        return recovered

    def _begin_proofs(self, manifest: Manifest | None) -> tuple[QueueProof, IndexProof | None]:
        layer, root, index = self._layer, self.config.root, self.index
        self._proof = proof = QueueProof(self.log, self.queues, self._lives, manifest)
        is_ours = queue_manifest.exists(layer, root)
        return proof, (
            None if index is None else IndexProof(self.log, index, proof.manifest, is_ours=is_ours)
        )

    def _end_proof(self) -> None:
        """Finish the proof: queues are up to date with the log, and topics begin where their owner
        says.
        """
        if self._proof is not None:
            self._proof.finish()
            self._proof = None
            self.reads.is_behind = False
            self.manifest.begin()

    def _release(self) -> None:
        """Close the files as they are, and unlock the folder."""
        parts: list[Callable[[], None]] = [
            self.queues.close,
            self.checkpoint.close,
            self.log.close,
            self._lock.release,
        ]
        for close in parts if self.index is None else [self.index.close, *parts]:
            try:
                close()
            except OSError as error:
                log.error("not_closed part=%s error=%s", close, error)

    # -- messages in

    @property
    def refusal(self) -> str | None:
        """Why messages are refused now, and the remedy; None if they are accepted."""
        if self.config.follows_master:
            return _IS_SLAVE
        return self.log.read_only_reason or self.retention.write_refusal or self._dispatch_failure

    def append(self, message: MessageRecord) -> Appended:
        """Add a message to the batch that the next `commit` writes; InvalidMessageError,
        StoreReadOnlyError or StoreFullError if it is refused.
        """
        self._check()
        try:
            return self.log.append(message, self._clock.now_ms())
        except OSError as error:
            raise _queue_unreadable(error) from error

    def append_batch(self, messages: Sequence[MessageRecord]) -> list[Appended]:
        """Add contiguous messages to the batch, all or none."""
        self._check()
        try:
            return self.log.append_batch(messages, self._clock.now_ms())
        except OSError as error:
            raise _queue_unreadable(error) from error

    def commit(self) -> None:
        """Write the appended messages; WriteFailedError if the disk fails, and none of them is
        stored.
        """
        begun_ms = self._clock.monotonic_ms()
        try:
            self.log.commit()
        finally:
            self.log_write_ms += self._clock.monotonic_ms() - begun_ms
        self._log_grew()

    def receive(self, offset: LogOffset, data: Buffer) -> None:
        """Write bytes of the master's log that continue those received before; an empty store
        begins with them.

        Raises what `CommitLog.receive` does.
        """
        if not self.log.files.files and self.log.received_end != offset:
            self.log.begin_at(offset)
            self.dispatcher.offset = offset
        try:
            self.log.receive(offset, data)
        finally:
            self._log_grew()

    def add_growth_listener(self, listener: Callable[[], None]) -> None:
        """Have `listener` called whenever the log has grown, or more of it is flushed."""
        self._growth_listeners.append(listener)

    def put(self, message: MessageRecord) -> Appended:
        """Store one message; it is durable after the next flush: `when_durable`."""
        appended = self.append(message)
        self.commit()
        return appended

    def when_durable(self, end: LogOffset, waiter: Waiter, message_count: int = 1) -> None:
        """Call `waiter` once the log is durable up to `end`, or with the failure; it stands for
        `message_count` messages.
        """
        self.flushing.when_durable(end, waiter, message_count)

    @property
    def waits(self) -> bool:
        """Whether replies to writes are sent only when `when_durable` reports an outcome."""
        return self._is_sync or self.replicas.is_required or self.replicas.is_missing

    # -- time

    @property
    def next_tick_ms(self) -> int:
        """When to call `tick` at the latest, by the monotonic clock."""
        return min(self.flushing.next_ms, self.retention.next_ms)

    def tick(self) -> None:
        """Flush what is due, notify waiters, delete expired files, retry what failed."""
        self.flushing.tick()
        if self._dispatch_failure is not None:
            self._dispatch()
        if self.flushing.derived_unsafe_reason is None:
            self.manifest.tick(*self.flushing.thorough_rounds)
        self.retention.tick(self._clock.now_ms(), self._clock.monotonic_ms())

    def flush(self) -> None:
        """Make everything durable, synchronously; StoreError if the disk fails."""
        self.flushing.flush_log()
        self._dispatch()
        self.flushing.flush()

    @property
    def visible_offset(self) -> LogOffset:
        """The offset up to which consumers may read the log."""
        return self.log.flushed_offset if self._is_sync else self.log.end_offset

    # -- inside

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic; created again, it begins at 0."""
        self.queues.delete_topic(topic)
        self.log.offsets.forget(topic)
        self.manifest.want()  # the last one still lists the topic

    def _check(self) -> None:
        if (too_few := self.replicas.refusal) is not None:
            raise NotEnoughReplicasError(too_few)
        if self.refusal is not None:
            raise (
                StoreReadOnlyError(self.refusal)
                if self.log.read_only_reason is not None
                else StoreFullError(self.refusal)
            )

    def _log_grew(self) -> None:
        self.flushing.written()
        if not self._is_sync:
            self._dispatch()
        for listener in self._growth_listeners:
            listener()

    def _log_flushed(self) -> None:
        self._dispatch()
        for listener in self._growth_listeners:
            listener()

    def _dispatch(self) -> None:
        """Bring queues and index up to the log, as far as readers may see it; if they cannot be
        written, new messages are refused.
        """
        try:
            self.dispatcher.advance(self.visible_offset)
            self._end_proof()
        except (WriteFailedError, OSError) as error:
            self._dispatch_failed(error)
        else:
            self._dispatch_failure = None

    def _dispatch_failed(self, error: Exception) -> None:
        if self._dispatch_failure is None:
            log.error("dispatch_failed error=%s", error)
        self._dispatch_failure = (
            f"{error}. Accepted messages are in the commit log; no more are accepted until this"
            " succeeds"
        )

    def _begin_of(self, topic: str) -> int:
        """Return the log offset from which records of a topic belong to its queues; in recovery, no
        record of a topic that does not exist does.
        """
        if self._proof is not None and not self._lives.exists(topic):
            return _NEVER
        return self._lives.begin_of(topic)

    def _next_offset(self, topic: bytes, queue_id: int) -> int:
        return self.queues.max_offset(topic.decode(), queue_id)


def _queue_unreadable(error: OSError) -> StoreError:
    """Return the error for an append whose queue offset cannot be determined."""
    return StoreError(
        "the message was not stored, because the end of its queue could not be read:"
        f" {reason_of(error)}; try again later"
    )


def _memory_size() -> int:
    """Return the machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
