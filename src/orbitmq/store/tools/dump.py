"""Records of a store as rows: by log offset, by queue, by key."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from enum import Enum

from orbitmq.common.errors import NotFoundError, OrbitError
from orbitmq.common.slices import finish
from orbitmq.message import hosts
from orbitmq.message.properties import KEY_SEPARATOR, KEYS, TAGS, UNIQUE_KEY
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.batch_consume_queue import ENTRY as BATCH_ENTRY
from orbitmq.store.consume_queue import ENTRY
from orbitmq.store.entry_scan import FILLER_SIZE
from orbitmq.store.index_file import IndexFile
from orbitmq.store.log_resync import LogResync
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.tools.directory import StoreDirectory
from orbitmq.store.tools.log_records import LogRecords
from orbitmq.store.tools.log_walk import LogWalk
from orbitmq.store.tools.queue_entries import QueueEntries
from orbitmq.store.types import LogOffset, QueueKey

_INFLATED_MAX = 64 << 20
_HITS_MAX = 10_000
_FOREVER = (1 << 63) - 1


class BodyForm(Enum):
    """How bodies are shown."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    NONE = "none"


def from_log(directory: StoreDirectory, offset: int | None) -> Iterator[StoredMessage]:
    """Iterate over the messages of the log, from the record at an offset on; NotFoundError if none
    begins there.
    """
    if offset is None:
        for record in LogWalk(directory, lambda _bad: None):
            yield record.message()
        return
    records = LogRecords(directory)
    try:
        if records.at(offset) is None:
            run = next(
                (run for run in records.runs if run.first_offset <= offset < run.end_offset), None
            )
            if run is None:
                raise NotFoundError(
                    f"the log has no byte {offset}: it has {records.min} to"
                    f" {records.runs[-1].end_offset if records.runs else 0}"
                )
            following = LogResync(run).find_next(LogOffset(offset), 0).next_offset
            hint = "none follows" if following is None else f"the next one is at {following}"
            raise NotFoundError(f"no record begins at {offset} of the log: {hint}")
    finally:
        records.close()
    for record in LogWalk(directory, lambda _bad: None, begin=LogOffset(offset)):
        yield record.message()


def from_queue(directory: StoreDirectory, key: QueueKey, begin: int) -> Iterator[StoredMessage]:
    """Iterate over the messages of a queue, from an offset on; those of a batch one by one."""
    folder, is_batch = directory.plain.get(key), False
    if folder is None:
        folder, is_batch = directory.batch.get(key), True
    if folder is None:
        known = sorted(
            queue.queue_id
            for queue in {*directory.plain, *directory.batch}
            if queue.topic == key.topic
        )
        raise NotFoundError(
            f"no queue {key.queue_id} of topic {key.topic}: "
            + (f"it has {known}" if known else "the store has no such topic")
        )
    size = directory.batch_file_size if is_batch else directory.queue_file_size
    entry = BATCH_ENTRY if is_batch else ENTRY
    files = OpenFiles(directory.layer)
    queue = QueueEntries(directory.layer, files, folder, size, entry.size)
    records = LogRecords(directory)
    try:
        for _number, raw in queue.from_(queue.first if is_batch else begin):
            log_offset, length = entry.unpack(raw)[:2]
            if length == FILLER_SIZE or length <= 0:
                continue
            record = records.at(log_offset) if log_offset < records.end else None
            if record is not None and (record.topic(), record.queue_id) == (
                key.topic.encode(),
                key.queue_id,
            ):
                yield from (
                    inner for inner in _opened(record.message()) if inner.queue_offset >= begin
                )
    finally:
        files.close()
        records.close()


def by_key(directory: StoreDirectory, key: str, topic: str | None) -> Iterator[StoredMessage]:
    """Iterate over the messages with a key or unique key: by the index if the topic is given and
    the store was stopped cleanly, else by a scan of the log.
    """
    if topic is not None and directory.index_shape is not None and directory.is_clean:
        found: dict[LogOffset, None] = {}
        for path in directory.index_files:
            if directory.layer.size(path) == directory.index_shape.file_size:
                file = IndexFile.open(directory.layer, path, directory.index_shape)
                finish(file.query(topic, key, _HITS_MAX, 0, _FOREVER, found))
                file.close()
        candidates = _all_at(directory, sorted(found))
    else:
        candidates = (record.message() for record in LogWalk(directory, lambda _bad: None))
    for message in candidates:
        if topic in (None, message.topic) and _has_key(message, key):
            yield message


def row(message: StoredMessage, form: BodyForm) -> dict[str, object]:
    """Return a message as one row."""
    properties = message.properties()
    found: dict[str, object] = {
        "offset": message.log_offset,
        "size": message.size,
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "store_time_ms": message.store_time_ms,
        "born_time_ms": message.born_time_ms,
        "msg_id": message.msg_id,
        "unique_key": properties.get(UNIQUE_KEY),
        "keys": properties.get(KEYS),
        "tags": properties.get(TAGS),
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "born_host": hosts.text_of(message.born_host),
        "store_host": hosts.text_of(message.store_host),
        "reconsume_times": message.reconsume_times,
        "prepared_offset": message.prepared_offset,
        "properties": properties,
    }
    if form is not BodyForm.NONE:
        found["body"] = body_text(message, form)
    return found


def body_text(message: StoredMessage, form: BodyForm) -> str:
    """Return the body as a consumer gets it, or as stored if it cannot be inflated."""
    try:
        body = message.inflated(_INFLATED_MAX).body
    except OrbitError:
        body = message.body
    if form is BodyForm.TEXT:
        return body.decode("utf-8", "backslashreplace")
    return body.hex() if form is BodyForm.HEX else base64.b64encode(body).decode()


def _all_at(directory: StoreDirectory, offsets: Iterable[int]) -> Iterator[StoredMessage]:
    records = LogRecords(directory)
    try:
        for offset in offsets:
            if (record := records.at(offset)) is not None:
                yield record.message()
    finally:
        records.close()


def _opened(message: StoredMessage) -> list[StoredMessage]:
    """Return the messages of a batch; the record itself if it is none, or cannot be split."""
    try:
        return (
            message.inflated(_INFLATED_MAX).inner_messages()
            if message.is_inner_batch
            else [message]
        )
    except OrbitError:
        return [message]


def _has_key(message: StoredMessage, key: str) -> bool:
    properties = message.properties()
    return key == properties.get(UNIQUE_KEY) or key in (properties.get(KEYS) or "").split(
        KEY_SEPARATOR
    )
