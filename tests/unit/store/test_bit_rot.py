"""One byte of a store changed, in every kind of field of every kind of file: L3 of the fault
ladder.

No field keeps the store from opening, takes another message along, or lets a body through that does
not have its checksum. What is seen of the change is the table that docs/format/integrity.md has.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from crash import store_load
from crash.store_verify import Place
from orbitmq.common import atomic_file
from orbitmq.common.errors import CorruptFileError
from orbitmq.message.record import decode
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_queue import file_name
from orbitmq.store.index_file import IndexShape
from orbitmq.store.message_store import MessageStore
from orbitmq.store.recovery import CorruptLogError
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.manual_clock import ManualClock
from support.store.indexes import UnsyncedLayer

pytestmark = pytest.mark.slow

COUNT = 70
LOG_FILE_SIZE = 8192
SHAPE = IndexShape(slots=31, entries=90)
FIRST, MIDDLE, LAST = (
    0,
    28,
    69,
)  # messages of plain queues: the first of the log, one in the middle, the last


class Field(NamedTuple):
    """Where a field of a record stands: `at` bytes behind the record's beginning, or behind the end
    of its body.
    """

    name: str
    at: int
    size: int
    behind_body: bool = False


RECORD = [
    Field("total size", 0, 4),
    Field("magic", 4, 4),
    Field("body CRC", 8, 4),
    Field("queue id", 12, 4),
    Field("flag", 16, 4),
    Field("queue offset", 20, 8),
    Field("log offset", 28, 8),
    Field("system flag", 36, 4),
    Field("born time", 40, 8),
    Field("born host", 48, 8),
    Field("store time", 56, 8),
    Field("store host", 64, 8),
    Field("reconsume times", 72, 4),
    Field("prepared offset", 76, 8),
    Field("body length", 84, 4),
    Field("body", 88, 9),
    Field("topic length", 0, 1, behind_body=True),
    Field("topic", 1, 6, behind_body=True),
    Field("properties length", 7, 2, behind_body=True),
    Field("properties", 9, 20, behind_body=True),
]


def config(root: Path) -> StoreConfig:
    return store_load.small(
        root, commit_log_file_size=LOG_FILE_SIZE, queue_ext_file_size=1024, index_shape=SHAPE
    )


def opened(root: Path) -> MessageStore:
    store = MessageStore(UnsyncedLayer(), ManualClock(), config(root), store_load.HOST)
    store.open()
    return store


class View(NamedTuple):
    """Everything that a reader gets: messages by queue and offset, what each message's own key
    finds, the tags codes that filters see.
    """

    messages: dict[Place, StoredMessage]
    hits: dict[int, list[int]]
    tags_codes: dict[Place, int]


def view(store: MessageStore) -> View:
    messages: dict[Place, StoredMessage] = {}
    tags_codes: dict[Place, int] = {}
    for key, queue in store.queues.plain.open_all():
        offset = QueueOffset(0)
        while (result := store.reads.get(key, offset, count_max=1)).max_offset > offset:
            assert result.next_offset > offset
            offset = result.next_offset
            if result.record_count:
                messages[key, offset - 1] = decode(result.records)
        for number in range(queue.min_offset, queue.max_offset):
            entry = queue.get(QueueOffset(number))
            assert entry is not None
            unit = queue.ext_unit(entry.tags_code)
            tags_codes[key, number] = entry.tags_code if unit is None else unit.tags_code
    for key, batches in store.queues.batch.open_all():
        offset = batches.min_offset
        while (batch := batches.get(offset)) is not None:
            found = store.reads.message_at(batch.log_offset)
            if found is not None:
                messages[key, batch.base_offset] = found
            offset = batch.next_offset
    hits = {
        number: [
            found.log_offset
            for found in store.reads.query(store_load.queue_of(number).topic, f"own{number}")
        ]
        for number in range(COUNT)
    }
    return View(messages, hits, tags_codes)


@dataclass(frozen=True, slots=True)
class Written:
    """A store as it was while it was open and after its stop, what it gives its readers, and where
    each message stands in log and queue.
    """

    images: dict[str, Path]
    view: View
    spans: dict[int, tuple[int, int]]
    places: dict[int, Place]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("written")
    store = opened(folder / "stopped")
    spans, places = {}, {}
    for number in range(COUNT):
        appended = store.put(store_load.message(number))
        spans[number] = int(appended.offset), appended.size
        places[number] = store_load.queue_of(number), int(appended.queue_offset)
    store.flush()
    seen = view(store)
    assert len(seen.messages) == COUNT
    assert all(found == [spans[number][0]] for number, found in seen.hits.items())
    assert spans[LAST][0] > 2 * LOG_FILE_SIZE
    shutil.copytree(folder / "stopped", folder / "killed")
    store.close()
    return Written(
        {"killed": folder / "killed", "stopped": folder / "stopped"}, seen, spans, places
    )


def flipped(image: Path, target: Path, file: str, at: int, bit: int) -> None:
    """A copy of the store with one bit of one byte changed."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(image, target)
    content = bytearray((target / file).read_bytes())
    content[at] ^= bit
    (target / file).write_bytes(content)


def outcome(written: Written, root: Path, target: Place | None) -> str:
    """In a few words, what readers see of the change, which was in the message at `target` if at
    any.
    """
    try:
        store = opened(root)
    except CorruptLogError:
        return "refused"
    before, after = written.view, view(store)
    counted = len(store.quarantine) > 0
    store.close()
    again = opened(root)
    assert view(again) == after, "another start sees the same"
    again.close()
    words = []
    if target is not None and target not in after.messages:
        words.append("not served")
    elif target is not None and after.messages[target] != before.messages[target]:
        words.append("served changed")
        assert after.messages[target].body == before.messages[target].body, (
            "the body has a checksum"
        )
    if any(
        after.messages.get(place) != found
        for place, found in before.messages.items()
        if place != target
    ):
        words.append("others lost")
    if after.messages.keys() - before.messages.keys():
        words.append("served elsewhere")
    if any(
        after.tags_codes.get(place) != before.tags_codes.get(place)
        for place in after.messages.keys() & before.messages.keys()
    ):
        words.append("filtered wrongly")
    if after.hits != before.hits:
        words.append("not found by key")
        assert all(
            not found or found == before.hits[number] for number, found in after.hits.items()
        )
    if counted:
        words.append("counted")
    return ", ".join(words) or "no effect"


GONE, CUT_OFF, CHANGED = (
    "not served, not found by key, counted",
    "not served, not found by key",
    "served changed",
)


class Row(NamedTuple):
    """What readers see when a field of a record is changed: of any record but the last, and of the
    last.

    After a kill, queues are rebuilt from what records say; after a stop they stay as they are,
    unless the end of the log was changed.
    """

    before_last_killed: tuple[str, ...]
    before_last_stopped: tuple[str, ...]
    last_killed: tuple[str, ...]
    last_stopped: tuple[str, ...]


MOVED = ("not served", "not served, counted", "not served, served elsewhere")
RENAMED = (GONE, "not served, served elsewhere, not found by key")
FRAME = Row((GONE,), (GONE,), (CUT_OFF,), (CUT_OFF,))
CHECKED = Row((GONE,), (GONE,), (CUT_OFF,), (GONE,))
UNCHECKED = Row((CHANGED,), (CHANGED,), (CHANGED,), (CHANGED,))
SEEN = {
    "total size": FRAME,
    "magic": FRAME,
    "body CRC": CHECKED,
    "queue id": Row(MOVED, (CHANGED,), MOVED, MOVED),
    "flag": UNCHECKED,
    "queue offset": Row(MOVED, (CHANGED,), MOVED, MOVED),
    "log offset": FRAME,
    "system flag": UNCHECKED,
    "born time": UNCHECKED,
    "born host": UNCHECKED,
    "store time": UNCHECKED,
    "store host": UNCHECKED,
    "reconsume times": UNCHECKED,
    "prepared offset": UNCHECKED,
    "body length": FRAME,
    "body": CHECKED,
    "topic length": FRAME,
    "topic": Row(RENAMED, (f"{CHANGED}, not found by key",), RENAMED, RENAMED),
    "properties length": FRAME,
    "properties": Row(
        *[(CHANGED, f"{CHANGED}, not found by key", f"{CHANGED}, filtered wrongly")] * 4
    ),
}
HIGHEST, LOWEST = 0x80, 0x01
BITS = tuple(1 << bit for bit in range(8))


def flip_record(
    written: Written, image: str, number: int, field: Field, target: Path, bit: int
) -> None:
    """Change a field of the record of a message: the first bit of its first byte, or the last of
    its last.
    """
    at = (
        written.spans[number][0]
        + field.at
        + (88 + len(store_load.body_of(number)) if field.behind_body else 0)
    )
    at += 0 if bit == HIGHEST else field.size - 1
    flipped(
        written.images[image],
        target,
        f"commitlog/{file_name(at - at % LOG_FILE_SIZE)}",
        at % LOG_FILE_SIZE,
        bit,
    )


@pytest.mark.parametrize("image", ["killed", "stopped"])
@pytest.mark.parametrize("field", RECORD, ids=lambda field: field.name)
def test_a_changed_field_of_a_record_is_seen_as_the_table_says(
    written: Written, field: Field, image: str, tmp_path: Path
) -> None:
    row = SEEN[field.name]
    for number in (FIRST, MIDDLE, LAST):
        before_last, last = (
            (row.before_last_killed, row.last_killed)
            if image == "killed"
            else (row.before_last_stopped, row.last_stopped)
        )
        expected = last if number == LAST else before_last
        for bit in (LOWEST,) if field.name in ("queue id", "topic") else (HIGHEST, LOWEST):
            flip_record(written, image, number, field, tmp_path / "store", bit)
            assert outcome(written, tmp_path / "store", written.places[number]) in expected, (
                number,
                bit,
            )


@pytest.mark.parametrize("image", ["killed", "stopped"])
@pytest.mark.parametrize("name", ["queue id", "topic"])
def test_a_record_of_a_queue_that_cannot_be_takes_nothing_else_along(
    written: Written, name: str, image: str, tmp_path: Path
) -> None:
    field = next(field for field in RECORD if field.name == name)
    for number in (FIRST, MIDDLE, LAST):
        flip_record(written, image, number, field, tmp_path / "store", HIGHEST)
        assert "others lost" not in outcome(written, tmp_path / "store", written.places[number])


@pytest.mark.parametrize("image", ["killed", "stopped"])
def test_a_changed_blank_at_the_end_of_a_file_costs_nothing(
    written: Written, image: str, tmp_path: Path
) -> None:
    end = max(
        offset + size for offset, size in written.spans.values() if offset + size < LOG_FILE_SIZE
    )
    for at in range(end, end + 8):
        for bit in (HIGHEST, LOWEST):
            flipped(written.images[image], tmp_path / "store", f"commitlog/{file_name(0)}", at, bit)
            assert outcome(written, tmp_path / "store", None) in ("no effect", "counted"), (
                at - end,
                bit,
            )


def derived_fields(written: Written) -> Iterator[tuple[str, str, int, int, Place | None, set[str]]]:
    """Name, file, place and size of every kind of field that follows from the log, whose message it
    is, and what may be seen of it.
    """
    queue = QueueKey("orders", 0)
    last = sum(place[0] == queue for place in written.places.values()) - 1
    for number in (0, 12, last):
        file, at, place = (
            f"consumequeue/orders/0/{file_name(number // 20 * 400)}",
            number % 20 * 20,
            (queue, number),
        )
        for name, begin, size in (("log offset", 0, 8), ("size", 8, 4), ("tags code", 12, 8)):
            yield f"entry: {name}", file, at + begin, size, place, {"no effect"}
        for name, begin, size in (
            ("size", 0, 2),
            ("tags code", 2, 8),
            ("store time", 10, 8),
            ("size of bits", 18, 2),
        ):
            yield (
                f"ext unit: {name}",
                f"consumequeue_ext/orders/0/{file_name(0)}",
                number * 20 + begin,
                size,
                place,
                {"no effect"},
            )
    batches = sorted(place for place in written.places.values() if place[0] == store_load.BATCHES)
    for number in (0, 2, len(batches) - 1):
        file, at, place = (
            f"batchconsumequeue/batches/0/{file_name(number // 4 * 184)}",
            number % 4 * 46,
            batches[number],
        )
        for name, begin, size in (
            *(("log offset", 0, 8), ("size", 8, 4), ("tags code", 12, 8), ("store time", 20, 8)),
            *(
                ("base offset", 28, 8),
                ("batch size", 36, 2),
                ("compacted", 38, 4),
                ("reserved", 42, 4),
            ),
        ):
            yield f"batch entry: {name}", file, at + begin, size, place, {"no effect"}
    manifest = (written.images["stopped"] / "queues.manifest").stat().st_size
    yield "manifest: ends", "queues.manifest", 0, manifest, None, {"no effect"}
    for at in range(0, manifest, 97):
        yield "manifest: text", "queues.manifest", at, 1, None, {"no effect"}
    files = sorted(path.name for path in (written.images["killed"] / "index").iterdir())
    for file in (f"index/{files[0]}", f"index/{files[-1]}"):
        places = {
            "begin time": (0, 8),
            "end time": (8, 8),
            "begin offset": (16, 8),
            "end offset": (24, 8),
            "slots used": (32, 4),
            "count": (36, 4),
        }
        places |= {f"slot {slot}": (40 + 4 * slot, 4) for slot in (3, 17)}
        for number in (1, 9):
            for name, begin, size in (
                ("hash", 0, 4),
                ("log offset", 4, 8),
                ("seconds", 12, 4),
                ("previous", 16, 4),
            ):
                places[f"entry {number} {name}"] = SHAPE.entries_at + 20 * number + begin, size
        for name, (at, size) in places.items():
            yield f"index: {name}", file, at, size, None, {"no effect"}
    for number in range(6):
        yield f"checkpoint: field {number}", "checkpoint", 8 * number, 8, None, {"no effect"}
    yield "lock", "lock", 0, 4, None, {"no effect"}
    yield "abort", "abort", 0, 1, None, {"no effect"}


@pytest.mark.parametrize("image", ["killed", "stopped"])
@pytest.mark.parametrize(
    "kind", ["entry", "ext unit", "batch entry", "manifest", "index", "checkpoint", "lock", "abort"]
)
def test_a_changed_field_of_a_file_that_follows_from_the_log_is_seen_as_the_table_says(
    written: Written, kind: str, image: str, tmp_path: Path
) -> None:
    for name, file, at, size, place, expected in derived_fields(written):
        if name.split(":")[0] == kind and (written.images[image] / file).exists():
            for bit, byte in ((HIGHEST, at), (LOWEST, at + size - 1)):
                flipped(written.images[image], tmp_path / "store", file, byte, bit)
                assert outcome(written, tmp_path / "store", place) in expected, (
                    name,
                    file,
                    byte,
                    bit,
                )


def test_no_flipped_bit_of_a_queue_entry_has_an_effect(written: Written, tmp_path: Path) -> None:
    """One entry of each kind of queue, and one unit: every bit of them, after a clean stop."""
    for file, at, size in (
        (f"consumequeue/orders/0/{file_name(0)}", 12 * 20, 20),
        (f"consumequeue_ext/orders/0/{file_name(0)}", 12 * 20, 20),
        (f"batchconsumequeue/batches/0/{file_name(0)}", 46, 46),
    ):
        for byte in range(at, at + size):
            for bit in BITS:
                flipped(written.images["stopped"], tmp_path / "store", file, byte, bit)
                store = opened(tmp_path / "store")
                assert view(store) == written.view, (file, byte, bit)
                store.close()


def test_a_changed_configuration_file_is_read_from_its_backup_or_refused_or_was_not_damaged(
    tmp_path: Path,
) -> None:
    path, old, new = tmp_path / "topics.json", {"table": {"a": 1}}, {"table": {"a": 1, "b": 22}}
    for content in (old, new):
        atomic_file.write(path, json.dumps(content).encode())
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in (HIGHEST, LOWEST):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :])
            found = atomic_file.read_or_backup(path, json.loads)
            assert found is not None
            assert found != new
            assert bit == LOWEST or found == old, "what is no text any more is always noticed"
    for damaged in (path, atomic_file.backup_path(path)):
        damaged.write_bytes(b"{" + whole[2:])
    with pytest.raises(CorruptFileError, match="restore one of them"):
        atomic_file.read_or_backup(path, json.loads)
