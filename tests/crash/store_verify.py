"""What a store gives back, against what was sent to it; and its queues and its index, against a
second set built from its log alone.

Reads as a broker does, by queue and by key. Decides nothing: the campaigns say which numbers may be
other than 0.
"""

from __future__ import annotations

import json
import shutil
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from crash import store_load
from orbitmq.common.clock import SystemClock
from orbitmq.message.record_read import RecordCursor
from orbitmq.store import batch_consume_queue, consume_queue
from orbitmq.store.batch_consume_queue import BatchConsumeQueue, BatchEntry
from orbitmq.store.consume_queue import ConsumeQueue, Entry
from orbitmq.store.index import Index, tags_key
from orbitmq.store.index_writer import ENTRY_SIZE
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset
from support.store.indexes import UnsyncedLayer

Place = tuple[QueueKey, int]  # a queue, and an offset in it
TOPICS = (*sorted({queue.topic for queue in store_load.QUEUES}), store_load.BATCHES.topic)
_INDEX_ENTRY = Struct(">iqii")
_ALL = 1 << 30
_ALWAYS = (0, (1 << 63) - 1)


@dataclass(slots=True)
class Report:
    """The numbers of one campaign, over all of its rounds; one line of JSON."""

    campaign: str
    seed: int
    rounds: int = 0
    attempted: int = 0
    acknowledged: int = 0
    indeterminate: int = 0  # attempted, and the end came before the answer
    delivered: int = 0  # read back
    lost: int = 0  # acknowledged, and not where it was said to be
    lost_unflushed: int = 0  # of those, acknowledged after the last flush that was finished
    duplicated: int = 0
    reordered: int = 0
    phantom: int = 0  # read, and never sent
    gaps: int = 0  # queue offsets that nothing can be read at
    torn: int = 0  # read with its own body and other properties: those have no checksum
    bad_bytes: int = 0  # places of the log that were put into quarantine
    recovery_ms: list[float] = field(default_factory=list)

    def line(self) -> str:
        """The report as it is printed."""
        numbers = asdict(self)
        times = numbers.pop("recovery_ms") or [0.0]
        numbers["recovery_ms_p50"], numbers["recovery_ms_max"] = (
            round(statistics.median(times), 1),
            round(max(times), 1),
        )
        return json.dumps(numbers)


def delivered(store: MessageStore) -> Iterator[tuple[Place, bytes, bytes]]:
    """Everything that can be read from the queues, in order: where it stands, its body and its
    properties.
    """
    cursor = RecordCursor()
    for key in sorted(store.queues.plain):
        offset = QueueOffset(0)
        while (result := store.reads.get(key, offset, count_max=32)).max_offset > offset:
            at = 0
            for _ in range(result.record_count):
                at += cursor.read(result.records, at, len(result.records))
                assert (cursor.topic().decode(), cursor.queue_id) == key
                assert offset <= cursor.queue_offset < result.next_offset
                yield (key, cursor.queue_offset), cursor.body(), cursor.properties()
            assert result.next_offset > offset, (
                f"{result.status} at {offset} of {key} leads nowhere"
            )
            offset = result.next_offset
    for key, queue in store.queues.batch.open_all():
        offset = queue.min_offset
        while (entry := queue.get(offset)) is not None:
            found = store.reads.message_at(entry.log_offset)
            if found is not None:
                yield (key, entry.base_offset), found.body, found.raw_properties
            offset = entry.next_offset


def look(
    store: MessageStore,
    report: Report,
    attempted: int,
    acknowledged: Mapping[int, Place],
    unflushed: Collection[int] = (),
) -> dict[int, Place]:
    """Count into `report` what is wrong with the store's messages, when those below `attempted`
    were sent; which there are, and where.
    """
    seen: Counter[int] = Counter()
    last: dict[QueueKey, int] = {}
    ends: dict[QueueKey, int] = {}
    places: dict[int, Place] = {}
    for (key, offset), body, properties in delivered(store):
        number = store_load.number_of(body)
        if number is None or number >= attempted or store_load.queue_of(number) != key:
            report.phantom += 1
            continue
        seen[number] += 1
        if store_load.has_properties(number, properties):
            places[number] = key, offset
        else:
            report.torn += 1
        report.reordered += number < last.get(key, -1)
        report.gaps += offset - ends.get(key, offset)
        last[key], ends[key] = number, offset + store_load.places_of(number)
    report.duplicated += sum(count - 1 for count in seen.values())
    lost = [number for number, place in acknowledged.items() if places.get(number) != place]
    report.lost += len(lost)
    report.lost_unflushed += sum(number in unflushed for number in lost)
    report.bad_bytes += len(store.quarantine)
    return places


class Derived(NamedTuple):
    """What follows from the log: entries and end of each queue, what the index holds and finds,
    where queues go on.
    """

    queues: dict[QueueKey, tuple[dict[int, Entry], QueueOffset]]
    batches: dict[QueueKey, tuple[dict[int, BatchEntry], QueueOffset]]
    keys: list[tuple[int, LogOffset]]  # as the index has them: hash of a key and record that has it
    hits: dict[tuple[str, str], list[LogOffset]]
    next_offsets: dict[QueueKey, QueueOffset]

    def without_ends(self) -> Derived:
        """The same but for where queues end."""
        nowhere = QueueOffset(-1)
        queues = {key: (entries, nowhere) for key, (entries, _) in self.queues.items()}
        return self._replace(
            queues=queues,
            batches={key: (entries, nowhere) for key, (entries, _) in self.batches.items()},
            next_offsets={},
        )


def derived(store: MessageStore) -> Derived:
    """What the queues and the index of the store have; what points at no record counts as nothing,
    and so do queues that are empty.
    """
    index = store.index
    assert index is not None
    names = [f"of{number}" for number in range(7)] + [
        tags_key(f"tag{number}") for number in range(3)
    ]
    hits = {
        (topic, key): sorted(index.query(topic, key, _ALL, *_ALWAYS).offsets)
        for topic in TOPICS
        for key in names
    }
    return Derived(
        {
            key: (_entries(store, queue), queue.max_offset)
            for key, queue in store.queues.plain.open_all()
            if queue.max_offset
        },
        {
            key: (_batches(store, queue), queue.max_offset)
            for key, queue in store.queues.batch.open_all()
            if queue.max_offset
        },
        _index_entries(store, index),
        {
            asked: [offset for offset in found if _is_record(store, offset)]
            for asked, found in hits.items()
        },
        {
            key: store.log.offsets.peek(key.topic.encode(), key.queue_id)
            for key in (*store_load.QUEUES, store_load.BATCHES)
        },
    )


def _entries(store: MessageStore, queue: ConsumeQueue) -> dict[int, Entry]:
    content = consume_queue.ENTRY.iter_unpack(queue.entries(queue.min_offset, _ALL))
    entries = {
        queue.min_offset + number: Entry._make(entry) for number, entry in enumerate(content)
    }
    return {
        offset: entry
        for offset, entry in entries.items()
        if _is_record(store, entry.log_offset, entry.size)
    }


def _batches(store: MessageStore, queue: BatchConsumeQueue) -> dict[int, BatchEntry]:
    entries = map(
        BatchEntry._make,
        batch_consume_queue.ENTRY.iter_unpack(queue.entries(queue.min_offset, _ALL)),
    )
    return {
        entry.base_offset: entry
        for entry in entries
        if _is_record(store, entry.log_offset, entry.size)
    }


def _index_entries(store: MessageStore, index: Index) -> list[tuple[int, LogOffset]]:
    """Each key of each record once: a start may put those of the last record again, for it may have
    lacked some.
    """
    found, begin = [], store.config.index_shape.entries_at
    for file in index.files:
        content = file.path.read_bytes()[
            begin + ENTRY_SIZE : begin + ENTRY_SIZE * file.header.entry_count
        ]
        found += [
            (key_hash, LogOffset(offset))
            for key_hash, offset, _, _ in _INDEX_ENTRY.iter_unpack(content)
        ]
    return [entry for entry in dict.fromkeys(found) if _is_record(store, entry[1])]


def _is_record(store: MessageStore, offset: LogOffset, size: int | None = None) -> bool:
    """Whether a record begins there, of that size if it is told, whatever its body, and with the
    properties it was sent with.
    """
    if size is None:
        head = store.log.read(offset, 4)
        size = 0 if head is None else int.from_bytes(head, "big", signed=True)
    content, cursor = store.log.read(offset, size), RecordCursor()
    if (
        content is None
        or cursor.read(content, 0, size, False) != size
        or cursor.log_offset != offset
    ):
        return False
    digits = cursor.body()[:8]
    return not digits.isdigit() or store_load.has_properties(int(digits), cursor.properties())


def differences(store: MessageStore, folder: Path, *, torn: bool = False) -> list[str]:
    """In which respects queues and index are not what the log alone gives, built in `folder`.

    Where messages lost their properties, and with them how many they are, the ends of queues that
    know better say nothing.
    """
    found, expected = derived(store), rebuilt(store, folder)
    if torn:
        found, expected = found.without_ends(), expected.without_ends()
    return [name for name in Derived._fields if getattr(found, name) != getattr(expected, name)]


def rebuilt(store: MessageStore, folder: Path) -> Derived:
    """What queues and index are like when they are built from a copy of the store's log, below
    `folder`, and nothing else.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "commitlog").mkdir(parents=True)
    for file in store.log.files.files:
        shutil.copy(file.path, folder / "commitlog")
    (folder / "abort").touch()  # so all of the log is read
    second = MessageStore(
        UnsyncedLayer(), SystemClock(), replace(store.config, root=folder), store_load.HOST
    )
    second.open()
    try:
        return derived(second)
    finally:
        second.close()
