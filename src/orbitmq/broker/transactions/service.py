"""Transactions of a broker: keeps half messages back, ends them as their producers say, and has producers asked that say nothing.

Whatever is decided is stored by one write: the message that consumers get together with the op record that says so, a half message that is
given up likewise. Crash rule: what was written is what happened; a transaction whose end was lost with the end of the log is pending again,
and asked about again. Only when that write was torn is a committed message there and the word of it is not: then the message itself is
found (`traces`).

Invariants: a transaction ends once, the first word counts, whichever copy of its half message it is said of. It is not asked for after it
ended, and not forgotten before. One that cannot be handled costs no other its turn. Thread rule: the loop thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from orbitmq.broker.offsets import Offsets
from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.plugins.interfaces import PluggableReads, TransactionChecks
from orbitmq.broker.processors.send import Placed, Placer, Waiting
from orbitmq.broker.transactions import records
from orbitmq.broker.transactions.pending import Pending, Rules, Step
from orbitmq.broker.transactions.queues import TransactionQueues
from orbitmq.broker.transactions.traces import Traces
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefused, StoreError
from orbitmq.common.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from orbitmq.message import half_messages, properties
from orbitmq.message.flags import TransactionType, with_transaction_type
from orbitmq.message.half_messages import PROPERTIES_ROOM, QUEUE_ID, Half
from orbitmq.message.layout import PROPERTIES_SIZE_MAX
from orbitmq.message.message_type import MessageType
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset

PERIOD_S: Final = 0.1
STEPS_MAX: Final = 100  # in one period: nobody waits for a round of many
_HOUR_MS: Final = 3_600_000

log = logging.getLogger(__name__)


class TransactionSettings(Protocol):
    """What of the configuration is looked at."""

    @property
    def broker_ip1(self) -> str: ...
    @property
    def reject_transaction_message(self) -> bool: ...
    @property
    def transaction_time_out(self) -> int: ...
    @property
    def transaction_check_max(self) -> int: ...
    @property
    def transaction_check_interval(self) -> int: ...
    @property
    def file_reserved_time(self) -> int: ...


class TransactionListener(Protocol):
    """Hears what becomes of the half messages of a topic."""

    def prepared(self, topic: str) -> None: ...

    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None:
        """Committed, rolled back or, None, given up."""
        ...


class AcceptedPlacer(Placer, Protocol):
    """Knows also of messages that were accepted before, and are stored for good now."""

    def place_accepted(self, message: Message, found: Mapping[str, str]) -> Placed | None:
        """What is stored of one that has these properties; None when it does not wait any more."""


class _Fate(NamedTuple):
    """What became of a transaction: how it ended, None when it was given up; and where the log ended with that."""

    kind: TransactionType | None
    log_end: LogOffset


class Transactions:
    """See above; a `TransactionService`."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        store: MessageStore,
        reads: PluggableReads,
        own: OwnMessages,
        offsets: Offsets,
        delay: AcceptedPlacer,
        checks: TransactionChecks,
        store_host: bytes,
        clock: Clock,
        listener: TransactionListener,
        ensure_topic: Callable[[str], object],
    ) -> None:
        self._settings = settings
        self._traces = Traces(reads)
        self._own = own
        self._delay = delay
        self._checks = checks
        self._store_host = store_host
        self._clock = clock
        self._listener = listener
        self._ensure_topic = ensure_topic
        self.pending = Pending()
        self._queues = TransactionQueues(self.pending, store, reads, offsets)
        self._unread: dict[int, _Fate] = {}  # by root, in the order of the log: what became of it, until the log is read that far
        self._round: deque[int] = deque()  # the roots that are still to be looked at
        self._round_began_ms = 0  # by the monotonic clock

    # -- life

    def load(self) -> None:
        """Find out which transactions have not ended; the store is open, and nobody sends yet."""
        self._queues.load()
        for half in self.pending:
            self._listener.prepared(half.topic)
        self._round_began_ms = self._clock.monotonic_ms()

    def follow(self) -> None:
        """Take the half messages that producers sent meanwhile."""
        for half in self._queues.follow():
            self._listener.prepared(half.topic)

    # -- half messages

    def prepare(self, message: Message, found: Mapping[str, str]) -> Message | None:
        """What is stored of a message of a transaction until that ends."""
        if found.get(properties.TRANSACTION_PREPARED, "").lower() != "true":
            return None
        if message.reconsume_times > 0:  # a consumer sends one back that was committed; it still says what it was
            message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.NONE)
            return None
        if self._settings.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._settings.broker_ip1}] sending transaction message is forbidden (rejectTransactionMessage=true)",
            )
        message.sys_flag = with_transaction_type(message.sys_flag, TransactionType.NONE)
        self._delay.place(message, found)  # a time that could not be used would be found out when it is too late
        half = records.half_of(message, found)
        if len(half.properties) > PROPERTIES_SIZE_MAX - PROPERTIES_ROOM:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"properties of {len(half.properties)} bytes: a message of a transaction may have "
                f"{PROPERTIES_SIZE_MAX - PROPERTIES_ROOM}; put what is large into the body",
            )
        return half

    def quick_half(self, topic: str, queue_id: int, unique_key: str, _number: int) -> Waiting | None:
        """The same for kernels, of a message that has none of the properties that are written here, and that is not to be delayed."""
        return None if self._settings.reject_transaction_message else records.quick_half(topic, queue_id, unique_key)

    def topic_of_half(self, root: int, log_offset: int) -> str | None:
        """The topic of a half message that waits where its producer's send put it; None when there is none."""
        half = self.pending.find(root)
        if half is None and root >= self.pending.next_half:
            self.follow()
            half = self.pending.find(root)
        return None if half is None or half.log_offset != log_offset else half.topic

    # -- their end

    def end(self, half: StoredMessage, kind: TransactionType) -> LogOffset:
        """Commit a half message, or roll it back; where the log ends with that. RequestRefused when it ended before, or cannot."""
        self.follow()
        root = half_messages.root_of(half)
        known = self._pending_for_sure(root, half)
        if known is None:
            return self._end_given_up(half, root, kind)
        end = self._store_end(half, kind, known.offset)
        self._ended(known, kind)
        return end

    def _pending_for_sure(self, root: int, half: StoredMessage) -> Half | None:
        """What is known of a transaction; None when it has ended, or was given up."""
        known = self.pending.find(root)
        if known is None or not known.is_doubtful:
            return known
        if self._traces.was_committed(half, root):
            log.warning("transaction_end_found root=%d topic=%s; its op record was lost, it is written again", root, known.topic)
            self._store_messages(known.offset)
            self._ended(known, TransactionType.COMMIT)
            return None
        self.pending.trust(root)
        return known

    def _end_given_up(self, half: StoredMessage, root: int, kind: TransactionType) -> LogOffset:
        """End a transaction that is not pending: one that was given up may still end, nobody else said how."""
        key = half.properties().get(properties.UNIQUE_KEY)
        what = f"the transaction of half message {root}, id {key}"
        if root >= self.pending.next_half:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{what}, is not on disk yet; its producer will be asked how it ended")
        if self._fate(half, root) is not None:
            remark = f"{what}, has ended before; the first word counts, this one changes nothing"
            raise RequestRefused(ResponseCode.TRANSACTION_FAILED, remark)
        end = self._store_end(half, kind, root, key)
        self._note_fate(root, kind)
        log.info("transaction_ended_late root=%d kind=%s; it was given up before", root, kind.name)
        return end

    def is_undone(self, half: StoredMessage) -> bool:
        """Whether it was rolled back."""
        self.follow()
        root = half_messages.root_of(half)
        is_open = root >= self.pending.next_half or self.pending.find(root) is not None
        return not is_open and self._fate(half, root) is TransactionType.ROLLBACK

    def _fate(self, half: StoredMessage, root: int) -> TransactionType | None:
        """How a transaction ended that is not pending; None when it was given up. One that left nothing else was rolled back."""
        fate = self._unread.get(root)
        if fate is not None:
            return fate.kind
        if self._traces.is_given_up(half, root):
            return None
        return TransactionType.COMMIT if self._traces.was_committed(half, root) else TransactionType.ROLLBACK

    def _note_fate(self, root: int, kind: TransactionType | None) -> None:
        """Keep in mind what the index does not tell yet: with SYNC_FLUSH the log is read when it is on disk."""
        log_end, read_until = self._queues.log_ends()
        self._unread.pop(root, None)
        if read_until < log_end:
            self._unread[root] = _Fate(kind, log_end)

    def _forget_fates(self) -> None:
        _, read_until = self._queues.log_ends()
        while self._unread and self._unread[root := next(iter(self._unread))].log_end <= read_until:
            del self._unread[root]

    def _store_end(self, half: StoredMessage, kind: TransactionType, ended: int, key: str | None = None) -> LogOffset:
        if kind is TransactionType.ROLLBACK:
            return self._store_messages(ended, key=key)
        message = records.committed(half)
        placed = self._delay.place_accepted(message, half.properties())
        return self._store_messages(ended, message if placed is None else placed.message, key=key)

    def _store_messages(self, ended: int, *before: Message, key: str | None = None) -> LogOffset:
        """Store messages, and behind them the record that a half message ended; all by one write."""
        *_, last = self._own.put(*before, self._op(ended, key=key), message_type=MessageType.TRANSACTION)
        self.pending.took_op(last.queue_offset, (ended,))
        return last.end

    def _op(self, *ended: int, key: str | None = None) -> Message:
        return records.op_of(ended, self._clock.now_ms(), self._store_host, key)

    def was_ended(self, half: Half, kind: TransactionType, op_offset: int) -> None:
        """Hear that what ends a transaction is stored, and its op record at that offset."""
        self.pending.took_op(op_offset, (half.offset,))
        self._ended(half, kind)

    def _ended(self, half: Half, kind: TransactionType | None) -> None:
        self._note_fate(half.root, kind)
        self._listener.ended(half.topic, kind, max(self._clock.now_ms() - half.since_ms, 0))

    # -- questions

    def resume(self, stored: StoredMessage) -> LogOffset:
        """Let the questions about a half message begin again, which was given up or not; RequestRefused when it has ended."""
        self.follow()
        if stored.topic not in (HALF_TOPIC, CHECK_MAX_TIME_TOPIC):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"a message of topic {stored.topic} is no half message")
        root = half_messages.root_of(stored) if stored.topic == HALF_TOPIC or half_messages.is_copy(stored) else None
        if root is not None and self._pending_for_sure(root, stored) is None and self._fate(stored, root) is not None:
            remark = f"the transaction of half message {root} has ended; there is nothing to ask"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
        copy = self._store_again(stored, root, 0)
        log.info("transaction_resumed root=%s topic=%s", root, copy.properties().get(properties.REAL_TOPIC))
        return LogOffset(copy.log_offset + copy.size)

    def tick(self) -> None:
        """Take what came, and do a part of what is due; a round begins after every `transactionCheckInterval`."""
        self.follow()
        now_ms = self._clock.monotonic_ms()
        if not self._round and now_ms - self._round_began_ms >= self._settings.transaction_check_interval:
            self._round.extend(self.pending.roots())
            self._round_began_ms = now_ms
        for _ in range(min(len(self._round), STEPS_MAX)):
            root = self._round.popleft()
            try:
                self._go_on_with(root)
            except StoreError as error:  # which no other one would fare better with
                log.warning("transaction_checks_put_off count=%d reason='%s'", len(self._round) + 1, error)
                self._round.clear()
                break
            except Exception:
                log.exception("transaction_check_failed root=%d; it is tried again in the next round", root)
        self._forget_fates()
        self._queues.keep_floors(now_ms)

    def _go_on_with(self, root: int) -> None:
        half = self.pending.find(root)
        if half is None:
            return
        settings = self._settings
        age_ms_max = settings.file_reserved_time * _HOUR_MS * 7 // 8  # its file may go at the end of that, and it is to be kept before
        rules = Rules(settings.transaction_time_out, settings.transaction_check_max, age_ms_max)
        step = self.pending.step(half, self._clock.now_ms(), rules, can_ask=self._checks.can_ask(half.group))
        if step is Step.WAIT:
            return
        stored = self._traces.half_at(half.log_offset)
        if stored is None:
            self._lost(half)
        elif self._pending_for_sure(root, stored) is None:
            return
        elif step is Step.GIVE_UP:
            self._give_up(half, stored)
        else:
            copy = self._store_again(stored, root, half.checks + (step is Step.ASK))
            if step is Step.ASK:
                self._checks.ask(copy)

    def _store_again(self, stored: StoredMessage, root: int | None, checks: int) -> StoredMessage:
        """Store a half message once more, at the end of its queue, and that the one before is done with; it as it is there.

        That is for the original, should it open the store: it takes copies for messages of their own. Of one that wants to be left alone it
        looks for the end of the first copy.
        """
        message = records.half_again(stored, root, checks)
        known = None if root is None else self.pending.find(root)
        is_left_alone = known is not None and known.immunity_s is not None and checks <= known.checks
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
            self.pending.moved(Half.of(copy) if known is None else Half.of(copy)._replace(since_ms=known.since_ms))
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
            "transaction_given_up root=%d topic=%s group=%s checks=%d; look at it by orbitmq tx, and let the questions begin again",
            half.root,
            half.topic,
            half.group,
            half.checks,
        )

    def _lost(self, half: Half) -> None:
        """The half message is no more: its file was deleted, or is damaged. There is nothing that could be committed."""
        self._store_messages(half.offset)
        self._ended(half, None)
        log.error("half_message_lost root=%d topic=%s group=%s log_offset=%d", half.root, half.topic, half.group, half.log_offset)
