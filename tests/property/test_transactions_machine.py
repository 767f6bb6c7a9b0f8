"""Transactions on a real store against a plain model: sent, ended, asked about, given up, resumed;
stopped, and cut off at any record.

The model is a list of what happened, each with the record of the log that makes it so. A crash
takes the end of the log away, from any record on that was not flushed, and with it what those
records made so; nothing else may be lost, and nothing may happen twice. With SYNC_FLUSH nobody sees
anything of a record before it is flushed, and a half message cannot end before.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.transactions import pending, records
from orbitmq.broker.transactions.service import Transactions
from orbitmq.common.errors import RefusedError
from orbitmq.common.topic_names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.message import properties
from orbitmq.message.flags import TransactionType
from orbitmq.message.message_type import MessageType
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.index_file import IndexShape
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.broker.listeners import Unheard
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.broker.settings import broker_settings
from support.common.process_files import ProcessFiles
from support.store.logs import HOST

TOPIC, GROUP = "orders", "ledger"
INTERVAL_MS, TIMEOUT_MS, CHECKS_MAX, IMMUNITY_S = 30_000, 6_000, 3, 100
COMMIT, ROLLBACK = TransactionType.COMMIT, TransactionType.ROLLBACK


class State(Enum):
    PENDING, COMMITTED, ROLLED_BACK, GIVEN_UP = range(4)


class Event(NamedTuple):
    """Something that a record of the log makes so."""

    log_offset: int
    key: str
    state: State
    checks: int
    copy: tuple[int, int] | None = None  # queue offset and log offset of a half message


class Silent(Unheard):
    """A listener that hears nothing, a delay that delays nothing."""

    def prepared(self, topic: str) -> None: ...
    def ended(self, topic: str, kind: TransactionType | None, age_ms: int) -> None: ...
    def rewrite(self, message: MessageRecord, found: object) -> None: ...
    def rewrite_accepted(self, message: MessageRecord, found: object) -> None: ...


class Overheard(InternalMessageWriter):
    """Notes where messages went."""

    def __init__(self, store: MessageStore) -> None:
        super().__init__(store, store, Silent())
        self.puts: list[tuple[Sequence[MessageRecord], Sequence[Appended]]] = []

    def put(
        self, *messages: MessageRecord, message_type: MessageType = MessageType.NORMAL
    ) -> Sequence[Appended]:
        appended = super().put(*messages, message_type=message_type)
        self.puts.append((messages, appended))
        return appended


class Checks:
    """Producers that are asked, or cannot be."""

    def __init__(self) -> None:
        self.is_online = True
        self.asked: list[StoredMessage] = []

    def can_ask(self, group: str) -> bool:
        assert group == GROUP
        return self.is_online

    def ask(self, half: StoredMessage) -> None:
        self.asked.append(half)

    def given_up(self, half: StoredMessage) -> MessageRecord | None:
        return records.given_up(half)


class TransactionsMachine(RuleBasedStateMachine):
    """Log files of some ten records, so that they roll all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="orbitmq-transactions-")
        self.root = Path(self.folder.name)
        self.clock = ManualClock()
        self.checks = Checks()
        self.events: list[Event] = []
        self.sent_ms: dict[str, int] = {}
        self.immune: set[str] = set()
        self.numbers = 0
        self.flushed = 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.patch.stop()
            self.store.abandon()
            self.offsets.abandon()
        self.folder.cleanup()

    @initialize(
        window=st.sampled_from([0, pending.WINDOW_MIN]), flush_mode=st.sampled_from(FlushMode)
    )
    def begin(self, window: int, flush_mode: FlushMode) -> None:
        """With half messages that are moved as soon as some lie behind them, or that stay where
        they are.
        """
        self.flush_mode = flush_mode
        self.patch = mock.patch.object(pending, "WINDOW_MIN", window)
        self.patch.start()
        self.open()

    def open(self) -> None:
        config = StoreConfig(
            root=self.root,
            flush_mode=self.flush_mode,
            commit_log_file_size=4096,
            queue_file_size=200,
            index_shape=IndexShape(slots=20, entries=100),
        )
        self.store = MessageStore(ProcessFiles(), self.clock, config, HOST)
        self.store.open()
        self.own = Overheard(self.store)
        journal = OffsetJournal(self.root / "consumerOffset.journal", ProcessFiles())
        self.offsets = Offsets(
            ConfigFile(self.root / "consumerOffset.json", InlineWorker(), ManualLoop()),
            journal,
            self.clock,
        )
        self.offsets.load()
        self.transactions = Transactions(
            broker_settings(
                transaction_time_out=TIMEOUT_MS,
                transaction_check_max=CHECKS_MAX,
                transaction_check_interval=INTERVAL_MS,
                file_reserved_time=1,
            ),
            store=self.store,
            reads=self.store.reads,
            own=self.own,
            offsets=self.offsets,
            delay=Silent(),
            checks=self.checks,
            store_host=HOST,
            clock=self.clock,
            listener=Silent(),
            ensure_topic=lambda topic: None,
        )
        self.transactions.load()

    # -- the model

    def states(self) -> dict[str, Event]:
        """The last thing that happened to each transaction."""
        return {event.key: event for event in self.events}

    def pending_keys(self) -> set[str]:
        return {
            key
            for key, event in self.states().items()
            if event.state is State.PENDING and self.can_be_seen(key)
        }

    def is_read(self, log_offset: int) -> bool:
        """Whether a record is in its queue."""
        return self.flush_mode is FlushMode.ASYNC or log_offset < self.flushed

    def can_be_seen(self, key: str) -> bool:
        """Whether the half message is in its queue, as its producer sent it."""
        return self.is_read(self.copies(key)[0][1])

    def copies(self, key: str) -> list[tuple[int, int]]:
        return [event.copy for event in self.events if event.key == key and event.copy is not None]

    def happened(
        self, key: str, place: Appended, state: State, checks: int, *, is_copy: bool = False
    ) -> None:
        copy = (int(place.queue_offset), int(place.offset)) if is_copy else None
        self.events.append(Event(int(place.offset), key, state, checks, copy))

    # -- what producers do

    @rule(is_immune=st.booleans(), is_flushed=st.booleans())
    def send(self, is_immune: bool, is_flushed: bool) -> None:
        self.numbers += 1
        key = f"order{self.numbers}"
        found: dict[str, str | None] = {
            properties.UNIQUE_KEY: key,
            properties.TRANSACTION_PREPARED: "true",
            properties.PRODUCER_GROUP: GROUP,
        }
        if is_immune:
            self.immune.add(key)
            found[properties.CHECK_IMMUNITY_TIME_S] = str(IMMUNITY_S)
        message = MessageRecord(
            TOPIC.encode(),
            key.encode(),
            born_host=HOST,
            born_time_ms=self.clock.now_ms(),
            properties=properties.encode(found),
        )
        half = self.transactions.prepare(
            message, {name: value for name, value in found.items() if value is not None}
        )
        assert half is not None
        (place,) = self.own.put(half)
        self.sent_ms[key] = self.clock.now_ms()
        self.happened(key, place, State.PENDING, 0, is_copy=True)
        if is_flushed:
            self.flush()

    @precondition(lambda self: self.events)
    @rule(data=st.data(), kind=st.sampled_from([COMMIT, ROLLBACK]))
    def say(self, data: st.DataObject, kind: TransactionType) -> None:
        """By any copy of the half message that there is, whether the transaction ended before or
        not.
        """
        key = data.draw(st.sampled_from(sorted(self.states())))
        _, log_offset = data.draw(st.sampled_from(self.copies(key)))
        half = self.store.reads.message_at(LogOffset(log_offset))
        assert half is not None
        before = self.states()[key]
        self.own.puts.clear()
        try:
            self.transactions.end(half, kind)
        except RefusedError:
            assert before.state in (State.COMMITTED, State.ROLLED_BACK) or not self.can_be_seen(key)
        else:
            assert before.state in (State.PENDING, State.GIVEN_UP)
            assert self.can_be_seen(key)
            ((_, places),) = self.own.puts
            self.happened(
                key,
                places[0],
                State.COMMITTED if kind is COMMIT else State.ROLLED_BACK,
                before.checks,
            )

    # -- what the broker does

    @rule(
        is_online=st.booleans(),
        wait_ms=st.sampled_from([INTERVAL_MS, 4 * INTERVAL_MS, 2 * 3_600_000]),
    )
    def go_round(self, is_online: bool, wait_ms: int) -> None:
        """Time passes, and producers are asked about what they said nothing of, if they are
        there.
        """
        self.clock.advance_ms(wait_ms)
        self.checks.is_online = is_online
        self.tick()

    def tick(self) -> None:
        self.checks.asked.clear()
        self.own.puts.clear()
        before = self.states()
        is_due = self.clock.monotonic_ms() - self.transactions._round_began_ms >= INTERVAL_MS
        self.transactions.tick()
        if is_due:
            self.check_round(before)
        else:
            assert not self.own.puts

    def check_round(self, before: dict[str, Event]) -> None:
        asked = [half.properties()[properties.UNIQUE_KEY] for half in self.checks.asked]
        expected, given_up = set(), set()
        for key, event in before.items():
            if event.state is not State.PENDING or not self.can_be_seen(key):
                continue
            age_ms = self.clock.now_ms() - self.sent_ms[key]
            if event.checks >= CHECKS_MAX or (age_ms > 3_600_000 and not self.checks.is_online):
                given_up.add(key)
            elif self.checks.is_online and age_ms > (
                IMMUNITY_S * 1000 if key in self.immune else TIMEOUT_MS
            ):
                expected.add(key)
        assert sorted(asked) == sorted(expected)
        for messages, places in self.own.puts:
            self.note_own(messages, places, before, expected, given_up)
        assert {
            key
            for key, event in self.states().items()
            if event.state is State.GIVEN_UP and before[key] is not event
        } == given_up

    def note_own(
        self,
        messages: Sequence[MessageRecord],
        places: Sequence[Appended],
        before: dict[str, Event],
        asked: set[str],
        given_up: set[str],
    ) -> None:
        """What a write of the broker's own made so: a copy, an end that was lost before, or that a
        transaction was given up.
        """
        first = properties.parse(bytes(messages[0].properties))
        if bytes(messages[0].topic) == HALF_TOPIC.encode():
            key = first[properties.UNIQUE_KEY]
            assert before[key].state is State.PENDING
            self.happened(
                key, places[0], State.PENDING, before[key].checks + (key in asked), is_copy=True
            )
        elif bytes(messages[-1].topic) == OP_HALF_TOPIC.encode():
            ended = {int(each) for each in bytes(messages[-1].body).decode().split(",") if each}
            (key,) = (
                key for key in self.states() if ended & {copy[0] for copy in self.copies(key)}
            )
            if (
                before[key].state is not State.COMMITTED
            ):  # of which the word was lost, and is written again
                assert key in given_up
                self.happened(key, places[-1], State.GIVEN_UP, before[key].checks)

    @precondition(lambda self: self.events)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.states())))
        _, log_offset = data.draw(st.sampled_from(self.copies(key)))
        half = self.store.reads.message_at(LogOffset(log_offset))
        assert half is not None
        before = self.states()[key]
        self.own.puts.clear()
        try:
            self.transactions.resume(half)
        except RefusedError:
            assert before.state in (State.COMMITTED, State.ROLLED_BACK) or not self.can_be_seen(key)
        else:
            assert before.state in (State.PENDING, State.GIVEN_UP)
            assert self.can_be_seen(key)
            ((_, places),) = self.own.puts
            self.happened(key, places[0], State.PENDING, 0, is_copy=True)

    # -- what happens to it

    @rule()
    def flush(self) -> None:
        self.store.flush()
        self.flushed = int(self.store.log.end_offset)

    @rule()
    def keep_offsets(self) -> None:
        """As they are committed, so they are on disk: ahead of the log, if that may be."""
        self.clock.advance_ms(1_001)
        self.tick()
        self.tick()
        self.offsets.flush()

    @rule()
    def stop(self) -> None:
        self.offsets.close()
        self.store.close()
        self.flushed = int(self.store.log.end_offset)
        self.open()

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The end of the log is gone, from any record on that was not flushed."""
        self.cut_off(
            data.draw(st.sampled_from([*self.unsafe_records(), int(self.store.log.end_offset)]))
        )

    @precondition(lambda self: self.unsafe_records())
    @rule()
    def tear(self) -> None:
        """The last record is gone: of a write of two, the second."""
        self.cut_off(self.unsafe_records()[-1])

    def unsafe_records(self) -> list[int]:
        end = self.store.log.end_offset
        scan = self.store.log.scan(
            LogOffset(self.flushed), end, check_body=False, check_record=False
        )
        return [int(record.log_offset) for record in scan]

    def cut_off(self, cut: int) -> None:
        self.offsets.flush()
        self.offsets.abandon()
        self.store.abandon()
        for file in (self.root / "commitlog").glob("*"):
            begin = max(cut - int(file.name), 0)
            content = file.read_bytes()
            file.write_bytes(content[:begin] + bytes(max(len(content) - begin, 0)))
        self.events = [event for event in self.events if event.log_offset < cut]
        self.open()
        self.flushed = int(self.store.log.end_offset)

    # -- what must be so

    @invariant()
    def what_is_open_is_known(self) -> None:
        self.transactions.follow()
        committed = {key for key, event in self.states().items() if event.state is State.COMMITTED}
        halves = [
            self.store.reads.message_at(LogOffset(half.log_offset))
            for half in self.transactions.pending
        ]
        known = {half.properties()[properties.UNIQUE_KEY] for half in halves if half is not None}
        assert len(halves) == len(known)
        assert self.pending_keys() <= known
        assert (
            known <= self.pending_keys() | committed
        )  # of which the word may have been lost, if not the message

    @invariant()
    def consumers_see_each_committed_message_once_and_nothing_else(self) -> None:
        seen = Counter(message.body.decode() for message in self.read(TOPIC))
        committed = [event for event in self.states().values() if event.state is State.COMMITTED]
        assert seen == Counter(event.key for event in committed if self.is_read(event.log_offset))

    @invariant()
    def what_was_rolled_back_is_known_to_be_undone(self) -> None:
        for key, event in self.states().items():
            half = self.store.reads.message_at(LogOffset(self.copies(key)[0][1]))
            assert half is not None
            assert self.transactions.is_undone(half) == (event.state is State.ROLLED_BACK)

    def read(self, topic: str) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        offset = 0
        while offset < self.store.queues.max_offset(topic, 0):
            result = self.store.reads.get(QueueKey(topic, 0), QueueOffset(offset), count_max=32)
            found += decode_all(result.records)
            offset = result.next_offset
        return found


TransactionsMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestTransactions = TransactionsMachine.TestCase
