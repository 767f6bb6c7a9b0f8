"""Transactions of a broker: holds half messages, commits them or rolls them back as their producers
say, and checks back with producers that stay silent.

Every decision is stored by one write: the message for consumers together with the op record that
says so, and likewise for a half message that is given up. Crash rule: the log decides what
happened; a transaction whose end was lost with the tail of the log is pending again, and checked
again. Only a torn write can leave a committed message without its op record: then the message
itself is found (`history`).

Invariants: a transaction ends exactly once; the first decision counts, whichever copy of the half
message it names. It is checked until it has ended, and not after. A transaction that cannot be
processed does not hold up the others. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.plugins.interfaces import PluggableReads, TransactionChecks
from orbitmq.broker.produce.deferral import Deferred, Holding, MessageRewriter
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.transactions import records
from orbitmq.broker.transactions.history import TransactionHistory
from orbitmq.broker.transactions.pending import Pending, PendingStep, Rules
from orbitmq.broker.transactions.queues import TransactionQueues
from orbitmq.common.clock import Clock
from orbitmq.common.errors import Refusal, RefusedError, StoreError
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from orbitmq.message import half_messages, properties
from orbitmq.message.flags import TransactionType, with_transaction_type
from orbitmq.message.half_messages import PROPERTIES_ROOM, QUEUE_ID, Half
from orbitmq.message.layout import PROPERTIES_SIZE_MAX
from orbitmq.message.message_type import MessageType
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

PERIOD_S: Final = 0.1
STEPS_MAX: Final = 100  # per period, so that a long round does not block the loop
_HOUR_MS: Final = 3_600_000

log = logging.getLogger(__name__)


class TransactionListener(Protocol):
    """Is notified of what happens to the half messages of a topic."""

    def prepared(self, topic: str) -> None: ...

    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None:
        """Count an end: committed, rolled back or, if None, given up."""
        ...


class AcceptedRewriter(MessageRewriter, Protocol):
    """A rewriter that also handles messages accepted earlier and stored for consumers now."""

    def rewrite_accepted(self, message: MessageRecord, found: Mapping[str, str]) -> Deferred | None:
        """Return what is stored for a message with these properties; None if it is not deferred any
        more.
        """


class _Fate(NamedTuple):
    """The outcome of a transaction, None if it was given up, and the end of the log at that
    time.
    """

    kind: TransactionType | None
    log_end: LogOffset


class Transactions:
    """The broker's own `TransactionService`."""

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        store: MessageStore,
        reads: PluggableReads,
        own: InternalMessageWriter,
        offsets: Offsets,
        delay: AcceptedRewriter,
        checks: TransactionChecks,
        store_host: bytes,
        clock: Clock,
        listener: TransactionListener,
        ensure_topic: Callable[[str], object],
    ) -> None:
        self._settings = settings
        self._traces = TransactionHistory(reads)
        self._own = own
        self._delay = delay
        self._checks = checks
        self._store_host = store_host
        self._clock = clock
        self._listener = listener
        self._ensure_topic = ensure_topic
        self.pending = Pending()
        self._queues = TransactionQueues(self.pending, store, reads, offsets)
        self._unread: dict[
            int, _Fate
            # outcomes by root, in log order, until the log is dispatched that far
        ] = {}
        self._round: deque[int] = deque()  # the roots that this round has still to visit
        self._round_began_ms = 0  # by the monotonic clock

    # -- lifecycle

    def load(self) -> None:
        """Find the pending transactions; the store is open, and no client can send yet."""
        self._queues.load()
        for half in self.pending:
            self._listener.prepared(half.topic)
        self._round_began_ms = self._clock.monotonic_ms()

    def follow(self) -> None:
        """Take in the half messages that producers have sent since the last call."""
        for half in self._queues.follow():
            self._listener.prepared(half.topic)

    # -- half messages

    def prepare(self, message: MessageRecord, found: Mapping[str, str]) -> MessageRecord | None:
        """Return the half message to store until the message's transaction ends."""
        if found.get(properties.TRANSACTION_PREPARED, "").lower() != "true":
            return None
        if (
            message.reconsume_times > 0
        ):  # a consumer sends a committed message back; its properties still mark it as one
            message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.NONE)
            return None
        if self._settings.reject_transaction_message:
            raise RefusedError(
                Refusal.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] sending transaction message is forbidden"
                " (rejectTransactionMessage=true)",
            )
        message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.NONE)
        self._delay.rewrite(
            message, found
        )  # an invalid delay would be noticed only at the commit, too late to refuse it
        half = records.half_of(message, found)
        if len(half.properties) > PROPERTIES_SIZE_MAX - PROPERTIES_ROOM:
            raise RefusedError(
                Refusal.INVALID_MESSAGE,
                f"properties of {len(half.properties)} bytes: a transactional message may have "
                f"{PROPERTIES_SIZE_MAX - PROPERTIES_ROOM}; move large values into the body",
            )
        return half

    def quick_half(
        self, topic: str, queue_id: int, unique_key: str, _number: int
    ) -> Holding | None:
        """The same for kernels: the message has none of the properties that are written here, and
        no delay.
        """
        return (
            None
            if self._settings.reject_transaction_message
            else records.quick_half(topic, queue_id, unique_key)
        )

    def topic_of_half(self, root: int, log_offset: int) -> str | None:
        """Return the topic of a pending half message that is still where its producer's send put
        it; None if there is none.
        """
        half = self.pending.find(root)
        if half is None and root >= self.pending.next_half:
            self.follow()
            half = self.pending.find(root)
        return None if half is None or half.log_offset != log_offset else half.topic

    # -- ends

    def end(self, half: StoredMessage, kind: TransactionType) -> LogOffset:
        """Commit or roll back a half message; return the end of the log afterwards. Raises
        RefusedError if it has ended already, or cannot be ended.
        """
        self.follow()
        root = half_messages.root_of(half)
        known = self._pending_for_sure(root, half)
        if known is None:
            return self._end_given_up(half, root, kind)
        end = self._store_end(half, kind, known.offset)
        self._ended(known, kind)
        return end

    def _pending_for_sure(self, root: int, half: StoredMessage) -> Half | None:
        """Return the pending transaction; None if it has ended or was given up."""
        known = self.pending.find(root)
        if known is None or not known.is_doubtful:
            return known
        if self._traces.was_committed(half, root):
            log.warning(
                "transaction_end_found root=%d topic=%s; its op record was lost, it is written"
                " again",
                root,
                known.topic,
            )
            self._store_messages(known.offset)
            self._ended(known, TransactionType.COMMIT)
            return None
        self.pending.trust(root)
        return known

    def _end_given_up(self, half: StoredMessage, root: int, kind: TransactionType) -> LogOffset:
        """End a transaction that is not pending: one that was given up can still be ended, as no
        decision was made for it.
        """
        key = half.properties().get(properties.UNIQUE_KEY)
        what = f"the transaction of half message {root}, id {key}"
        if root >= self.pending.next_half:
            raise RefusedError(
                Refusal.FAILED,
                f"{what}, is not on disk yet; its producer will be asked how it ended",
            )
        if self._fate(half, root) is not None:
            remark = (
                f"{what}, has already ended; the first decision counts, this one changes nothing"
            )
            raise RefusedError(Refusal.TRANSACTION_FAILED, remark)
        end = self._store_end(half, kind, root, key)
        self._note_fate(root, kind)
        log.info("transaction_ended_late root=%d kind=%s; it was given up before", root, kind.name)
        return end

    def is_undone(self, half: StoredMessage) -> bool:
        """Return whether the transaction was rolled back."""
        self.follow()
        root = half_messages.root_of(half)
        is_open = root >= self.pending.next_half or self.pending.find(root) is not None
        return not is_open and self._fate(half, root) is TransactionType.ROLLBACK

    def _fate(self, half: StoredMessage, root: int) -> TransactionType | None:
        """Return the outcome of a transaction that is not pending; None if it was given up. One
        that left no other trace was rolled back.
        """
        fate = self._unread.get(root)
        if fate is not None:
            return fate.kind
        if self._traces.is_given_up(half, root):
            return None
        return (
            TransactionType.COMMIT
            if self._traces.was_committed(half, root)
            else TransactionType.ROLLBACK
        )

    def _note_fate(self, root: int, kind: TransactionType | None) -> None:
        """Remember an outcome that the index lacks: with SYNC_FLUSH the log is dispatched only
        after it is flushed.
        """
        log_end, read_until = self._queues.log_ends()
        self._unread.pop(root, None)
        if read_until < log_end:
            self._unread[root] = _Fate(kind, log_end)

    def _forget_fates(self) -> None:
        _, read_until = self._queues.log_ends()
        while self._unread and self._unread[root := next(iter(self._unread))].log_end <= read_until:
            del self._unread[root]

    def _store_end(
        self, half: StoredMessage, kind: TransactionType, ended: int, key: str | None = None
    ) -> LogOffset:
        if kind is TransactionType.ROLLBACK:
            return self._store_messages(ended, key=key)
        message = records.committed(half)
        deferred = self._delay.rewrite_accepted(message, half.properties())
        return self._store_messages(
            ended, message if deferred is None else deferred.message, key=key
        )

    def _store_messages(
        self, ended: int, *before: MessageRecord, key: str | None = None
    ) -> LogOffset:
        """Store messages, followed by the op record that ends a half message, in one write."""
        *_, last = self._own.put(
            *before, self._op(ended, key=key), message_type=MessageType.TRANSACTION
        )
        self.pending.took_op(last.queue_offset, (ended,))
        return last.end

    def _op(self, *ended: int, key: str | None = None) -> MessageRecord:
        return records.op_of(ended, self._clock.now_ms(), self._store_host, key)

    def was_ended(self, half: Half, kind: TransactionType, op_offset: int) -> None:
        """Note that the records that end a transaction are stored, its op record at that offset."""
        self.pending.took_op(op_offset, (half.offset,))
        self._ended(half, kind)

    def _ended(self, half: Half, kind: TransactionType | None) -> None:
        self._note_fate(half.root, kind)
        self._listener.ended(half.topic, kind, max(self._clock.now_ms() - half.since_ms, 0))

    # -- checks

    def resume(self, stored: StoredMessage) -> LogOffset:
        """Restart the checks of a half message, whether it was given up or not. Raises
        RefusedError if it has ended.
        """
        self.follow()
        if stored.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
            raise RefusedError(
                Refusal.FAILED,
                f"a message of topic {stored.topic} is not a half message",
            )
        root = (
            half_messages.root_of(stored)
            if stored.topic == HALF_TOPIC or half_messages.is_copy(stored)
            else None
        )
        if (
            root is not None
            and self._pending_for_sure(root, stored) is None
            and self._fate(stored, root) is not None
        ):
            remark = f"the transaction of half message {root} has ended; there is nothing to ask"
            raise RefusedError(Refusal.FAILED, remark)
        copy = self._store_again(stored, root, 0)
        log.info(
            "transaction_resumed root=%s topic=%s",
            root,
            copy.properties().get(properties.REAL_TOPIC),
        )
        return LogOffset(copy.log_offset + copy.size)

    def tick(self) -> None:
        """Take in new half messages, and process a part of the current round; a round begins every
        `transactionCheckInterval`.
        """
        self.follow()
        now_ms = self._clock.monotonic_ms()
        if (
            not self._round
            and now_ms - self._round_began_ms >= self._settings.transaction_check_interval
        ):
            self._round.extend(self.pending.roots())
            self._round_began_ms = now_ms
        for _ in range(min(len(self._round), STEPS_MAX)):
            root = self._round.popleft()
            try:
                self._go_on_with(root)
            except StoreError as error:  # the others would fail likewise
                log.warning(
                    "transaction_checks_put_off count=%d reason='%s'", len(self._round) + 1, error
                )
                self._round.clear()
                break
            except Exception:
                log.exception(
                    "transaction_check_failed root=%d; it is retried in the next round", root
                )
        self._forget_fates()
        self._queues.keep_floors(now_ms)

    def _go_on_with(self, root: int) -> None:
        half = self.pending.find(root)
        if half is None:
            return
        settings = self._settings
        age_ms_max = (
            settings.file_reserved_time * _HOUR_MS * 7 // 8
        )  # its file may be deleted after that, so it is moved before
        rules = Rules(settings.transaction_time_out, settings.transaction_check_max, age_ms_max)
        step = self.pending.step(
            half, self._clock.now_ms(), rules, can_ask=self._checks.can_ask(half.group)
        )
        if step is PendingStep.WAIT:
            return
        stored = self._traces.half_at(half.log_offset)
        if stored is None:
            self._lost(half)
        elif self._pending_for_sure(root, stored) is None:
            return
        elif step is PendingStep.GIVE_UP:
            self._give_up(half, stored)
        else:
            copy = self._store_again(stored, root, half.checks + (step is PendingStep.ASK))
            if step is PendingStep.ASK:
                self._checks.ask(copy)

    def _store_again(self, stored: StoredMessage, root: int | None, checks: int) -> StoredMessage:
        """Copy a half message to the end of its queue, and mark the previous copy as done; return
        it as it is there.

        The op record is for Apache RocketMQ, should it open the store: it takes copies for messages
        of their own. For a half message with a check immunity time it looks for the end of the
        first copy.
        """
        message = records.half_again(stored, root, checks)
        known = None if root is None else self.pending.find(root)
        is_left_alone = (
            known is not None and known.immunity_s is not None and checks <= known.checks
        )
        ops = () if known is None or is_left_alone else (self._op(known.offset),)
        place, *rest = self._own.put(message, *ops)
        copy = stored._replace(
            topic=HALF_TOPIC,
            queue_id=QUEUE_ID,
            queue_offset=place.queue_offset,
            log_offset=place.offset,
            store_time_ms=place.store_time_ms,
            store_host=self._store_host,
            raw_properties=bytes(message.properties),
            size=place.size,
        )
        if root is not None:
            self._unread.pop(root, None)
            self.pending.moved(
                Half.of(copy) if known is None else Half.of(copy)._replace(since_ms=known.since_ms)
            )
        for op in rest:
            self.pending.took_op(op.queue_offset, () if known is None else (known.offset,))
        return copy

    def _give_up(self, half: Half, stored: StoredMessage) -> None:
        kept = self._checks.given_up(stored)
        messages = () if kept is None else (kept,)
        for message in messages:
            self._ensure_topic(bytes(message.topic).decode())
        op = self._op(half.root, half.offset, key=stored.properties().get(properties.UNIQUE_KEY))
        *_, last = self._own.put(*messages, op)
        self.pending.took_op(last.queue_offset, (half.root, half.offset))
        self._ended(half, None)
        log.error(
            "transaction_given_up root=%d topic=%s group=%s checks=%d; inspect it with"
            " orbitmq tx, and resume its checks",
            half.root,
            half.topic,
            half.group,
            half.checks,
        )

    def _lost(self, half: Half) -> None:
        """Drop a transaction whose half message is gone: its file was deleted or is corrupt, so
        there is nothing to commit.
        """
        self._store_messages(half.offset)
        self._ended(half, None)
        log.error(
            "half_message_lost root=%d topic=%s group=%s log_offset=%d",
            half.root,
            half.topic,
            half.group,
            half.log_offset,
        )
