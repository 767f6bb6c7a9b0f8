"""Dispatch, in turns of any length, over records of all kinds: queues, index and arrivals are what
each record by itself says.

The model goes over the log record by record and knows nothing of runs; whatever the kernel keeps
from turn to turn must not show.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message import properties
from orbitmq.message.flags import TransactionType, transaction_type
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.tags import tags_code
from orbitmq.store.config import DELAY_LEVELS_MS
from orbitmq.store.consume_queue import ENTRY
from orbitmq.store.dispatch import SCHEDULE_TOPIC, Arrival
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from support.store.logs import HOST, NOW_MS
from support.store.reads import ReadsRoom


@dataclass(frozen=True)
class Sent:
    """What one message is like."""

    topic: str
    queue_id: int
    kind: TransactionType
    names: dict[str, str]

    def message(self) -> MessageRecord:
        text = properties.encode(self.names)
        return MessageRecord(
            self.topic.encode(),
            b"body",
            born_host=HOST,
            born_time_ms=1,
            queue_id=self.queue_id,
            sys_flag=self.kind,
            properties=text,
        )


_sent = st.builds(
    Sent,
    st.sampled_from(["orders", "order", "订单", SCHEDULE_TOPIC]),
    st.integers(0, 2),
    st.sampled_from(list(TransactionType)),
    st.fixed_dictionaries(
        {},
        optional={
            properties.TAGS: st.sampled_from(["TagA", "标签", "a"]),
            properties.KEYS: st.sampled_from(["k1", "k1 k2", "键"]),
            properties.DELAY: st.sampled_from(["1", "18", "99", "x"]),
        },
    ),
)


@pytest.mark.parametrize("ext_file_size", [None, 10_000])
@given(turns=st.lists(st.lists(_sent, max_size=40), max_size=4))
def test_whatever_comes_in_whatever_turns_queues_index_and_arrivals_have_it(
    ext_file_size: int | None, turns: list[list[Sent]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    room = ReadsRoom(tmp_path_factory.mktemp("store"), queue_ext_file_size=ext_file_size)
    arrived: list[Arrival] = []
    room.dispatcher.add_listener(arrived.append)
    for turn in turns:
        for sent in turn:
            room.log.append(sent.message(), NOW_MS)
        room.log.commit()
        room.dispatcher.advance()
    entries, arrivals, keys = _model(room)
    assert arrived == arrivals
    for key, expected in entries.items():
        queue = room.queues.plain.find(*key)
        assert queue is not None
        found = [
            ENTRY.unpack_from(queue.entries(QueueOffset(0), len(expected)), 20 * number)
            for number in range(queue.max_offset)
        ]
        if ext_file_size is not None:
            found = [
                (*entry[:2], unit.tags_code)
                for entry in found
                if (unit := queue.ext_unit(entry[2])) is not None
            ]
        assert found == expected
    for (topic, text), offsets in keys.items():
        assert sorted(room.index.query(topic, text, 1000, 0, 1 << 62).offsets) == offsets
    room.close()


def test_what_was_dispatched_is_dispatched_again_without_a_trace_but_its_arrival(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    room = ReadsRoom(tmp_path_factory.mktemp("store"))
    arrived: list[Arrival] = []
    for number in range(100):
        room.log.append(
            Sent("orders", number % 3, TransactionType.NONE, {properties.KEYS: "k"}).message(),
            NOW_MS,
        )
    room.log.commit()
    room.dispatcher.advance()
    before = [
        room.queues.plain.obtain("orders", queue_id).entries(QueueOffset(0), 100)
        for queue_id in range(3)
    ]
    room.dispatcher.add_listener(arrived.append)
    room.dispatcher.offset = LogOffset(0)
    room.dispatcher.advance()
    assert [
        room.queues.plain.obtain("orders", queue_id).entries(QueueOffset(0), 100)
        for queue_id in range(3)
    ] == before
    assert len(room.index.query("orders", "k", 1000, 0, 1 << 62).offsets) == 100
    assert arrived == _model(room)[1]


def test_a_topic_that_was_deleted_and_made_again_gets_its_entries_in_the_new_queue(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    room = ReadsRoom(tmp_path_factory.mktemp("store"))
    sent = Sent("orders", 0, TransactionType.NONE, {})
    for _ in range(2):
        for _ in range(3):
            room.log.append(sent.message(), NOW_MS)
        room.log.commit()
        room.dispatcher.advance()
        queue = room.queues.plain.find("orders", 0)
        assert queue is not None
        assert queue.max_offset == 3
        room.queues.delete_topic("orders")
        room.log.offsets.forget("orders")


def _model(
    room: ReadsRoom,
) -> tuple[
    dict[QueueKey, list[tuple[int, int, int]]],
    list[Arrival],
    dict[tuple[str, str], list[LogOffset]],
]:
    """What queues, listeners and index should have."""
    entries: dict[QueueKey, list[tuple[int, int, int]]] = defaultdict(list)
    keys: dict[tuple[str, str], list[LogOffset]] = defaultdict(list)
    arrivals = []
    for record in room.log.scan(LogOffset(0)):
        kind, key, names = (
            transaction_type(record.sys_flag),
            QueueKey(record.topic().decode(), record.queue_id),
            record.message().properties(),
        )
        if kind in (TransactionType.NONE, TransactionType.COMMIT):
            code = tags_code(names.get(properties.TAGS))
            level = names.get(properties.DELAY, "")
            if key.topic == SCHEDULE_TOPIC and level.isdigit():
                code = NOW_MS + DELAY_LEVELS_MS[min(int(level), len(DELAY_LEVELS_MS)) - 1]
            assert record.queue_offset == len(entries[key])
            entries[key].append((record.log_offset, record.size, code))
            arrivals.append(
                Arrival(key, QueueOffset(record.queue_offset + 1), code, StoreTimeMs(NOW_MS))
            )
        if kind is not TransactionType.ROLLBACK:
            for text in {
                *names.get(properties.KEYS, "").split(),
                *(f"T#{tags}" for tags in [names.get(properties.TAGS)] if tags),
            }:
                keys[key.topic, text].append(LogOffset(record.log_offset))
    return entries, arrivals, keys
