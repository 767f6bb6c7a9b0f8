"""Whatever is put, filtered, damaged and limited: who follows `next_offset` gets each message that
he wants once, in order, and ends.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.message.batch import decode
from orbitmq.message.properties import TAGS
from orbitmq.message.record import decode_all
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.tags import tags_code
from orbitmq.store.consume_queue_ext import ExtUnit
from orbitmq.store.reads import GetStatus, MessageFilter, TagsFilter
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset
from support.store.reads import BODY_AT, ReadsRoom

QUEUES = [QueueKey("plain", 0), QueueKey("plain", 1), QueueKey("batches", 0)]
TAG_NAMES = ["red", "green", "blue"]


class Put(NamedTuple):
    """A message, or in a batch queue a batch of one for each body."""

    queue: QueueKey
    tags: str
    bodies: list[bytes]
    is_damaged: bool


class ByRecord(NamedTuple):
    """Wants messages of these tags, and looks into the record for that."""

    tags: frozenset[str]
    tags_codes: frozenset[int] | None = None
    passes_bare_entries: bool = False
    record_cost: int = 1

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        return True

    def matches_record(self, record: RecordCursor) -> bool:
        return record.property(TAGS) in self.tags


puts = st.lists(
    st.builds(
        Put,
        st.sampled_from(QUEUES),
        st.sampled_from(TAG_NAMES),
        st.lists(st.binary(min_size=1, max_size=250), min_size=1, max_size=3),
        st.integers(0, 9).map(lambda number: number == 0),
    ),
    max_size=60,
)
limits = st.fixed_dictionaries(
    {
        "commit_log_file_size": st.sampled_from([1500, 4000, 1 << 20]),
        "queue_file_size": st.sampled_from([20, 100, 2000]),
        "batch_queue_file_size": st.sampled_from([46, 460]),
        "queue_ext_file_size": st.sampled_from([None, 200]),
        "filter_entries_max": st.integers(0, 20),
        "hot_bytes_max": st.integers(0, 3000),
        "hot_count_max": st.integers(0, 8),
        "cold_bytes_max": st.integers(0, 1000),
        "cold_count_max": st.integers(0, 4),
        "memory_size": st.sampled_from([0, 3000, 1 << 40]),
    }
)


@settings(max_examples=60)
@given(
    puts,
    limits,
    st.none() | st.frozensets(st.sampled_from(TAG_NAMES)),
    st.booleans(),
    st.integers(-1, 40),
    st.integers(0, 3000),
)
def test_a_walk_over_a_queue_gives_each_wanted_message_once_in_order(
    messages: list[Put],
    settings: dict[str, int],
    tags: frozenset[str] | None,
    by_record: bool,
    count_max: int,
    bytes_max: int,
) -> None:
    wanted: MessageFilter | None = None
    if tags is not None:
        wanted = ByRecord(tags) if by_record else TagsFilter(frozenset(map(tags_code, tags)))
    with tempfile.TemporaryDirectory() as folder:
        room = ReadsRoom(Path(folder), **settings)
        expected: dict[QueueKey, list[bytes]] = {queue: [] for queue in QUEUES}
        ends: dict[QueueKey, int] = dict.fromkeys(QUEUES, 0)
        bad = set()
        for put in messages:
            is_batch = put.queue.topic == "batches"
            bodies = put.bodies if is_batch else put.bodies[:1]
            place = (
                room.put_batch(bodies, put.queue, TAGS=put.tags)
                if is_batch
                else room.put(bodies[0], put.queue, TAGS=put.tags)
            )
            ends[put.queue] += len(bodies)
            if put.is_damaged:
                at = place.offset + BODY_AT
                content = room.log.read(LogOffset(at), 1)
                assert content is not None
                room.damage(at, bytes([content[0] ^ 0xFF]))
            is_wanted = tags is None or put.tags in tags
            if put.is_damaged and (is_wanted or by_record):  # or nobody had to look at it
                bad.add(place.offset)
            elif is_wanted:
                expected[put.queue] += bodies
        for queue in QUEUES:
            offset, found = QueueOffset(0), list[bytes]()
            while offset < ends[queue]:
                result = room.reads.get(
                    queue, offset, count_max=count_max, bytes_max=bytes_max, wanted=wanted
                )
                assert result.status in (
                    GetStatus.FOUND,
                    GetStatus.NO_MATCHED_MESSAGE,
                    GetStatus.MESSAGE_WAS_REMOVING,
                )
                assert (result.status is GetStatus.FOUND) == (result.record_count > 0)
                assert offset < result.next_offset <= ends[queue] == result.max_offset
                records = [message.body for message in decode_all(bytes(result.records))]
                inner = (
                    [item.body for body in records for item in decode(body)]
                    if queue.topic == "batches"
                    else records
                )
                assert (len(records), len(inner)) == (result.record_count, result.message_count)
                assert result.record_count <= 1 or (
                    result.message_count <= count_max and len(result.records) <= bytes_max
                )
                found += inner
                offset = result.next_offset
            assert found == expected[queue]
            end = room.reads.get(queue, offset, count_max=1).status
            assert end is (
                GetStatus.OFFSET_OVERFLOW_ONE if ends[queue] else GetStatus.NO_MATCHED_LOGIC_QUEUE
            )
        assert {found.offset for found in room.quarantine} == bad
        room.close()
