"""What the tests of the index share: records with keys, small indexes, and a look at their
files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.message import hosts, properties
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.record_write import MessageRecord, encode
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.index import Index
from orbitmq.store.index_file import IndexShape
from orbitmq.testing.manual_clock import ManualClock
from support.common.process_files import ProcessFiles

HOST = hosts.pack("192.0.2.1", 10911)
TIME_MS = 1_700_000_000_000
SHAPE = IndexShape(7, 20)
ALWAYS = (0, (1 << 63) - 1)


class UnsyncedLayer(ProcessFiles):
    """The real files, without waiting for the disk: for tests that make thousands, and lose no
    power.
    """

    def fdatasync(self, descriptor: int) -> None:
        pass

    def sync_dir(self, folder: Path) -> None:
        pass


class Keyed(NamedTuple):
    """A record, as far as the index looks at it."""

    log_offset: int
    store_time_ms: int = TIME_MS
    topic: str = "Topic"
    unique_key: str | None = None
    keys: str | None = None
    tags: str | None = None

    def cursor(self) -> RecordCursor:
        """A cursor on the record's bytes."""
        names = {
            properties.UNIQUE_KEY: self.unique_key,
            properties.KEYS: self.keys,
            properties.TAGS: self.tags,
        }
        message = MessageRecord(
            self.topic.encode(),
            b"",
            born_host=HOST,
            born_time_ms=1,
            properties=properties.encode(names),
        )
        target = bytearray(1000)
        size = encode(message, target, 0, 0, self.log_offset, self.store_time_ms, HOST)
        cursor = RecordCursor()
        assert cursor.read(target, 0, size) == size
        return cursor


def make_index(folder: Path, layer: FileLayer | None = None, shape: IndexShape = SHAPE) -> Index:
    return Index(layer or ProcessFiles(), folder, ManualClock(TIME_MS), shape)


def loaded(folder: Path, shape: IndexShape = SHAPE) -> Index:
    """The index that was stopped before."""
    index = make_index(folder, shape=shape)
    index.load(None)
    return index


def put_all(index: Index, records: Sequence[Keyed]) -> None:
    for record in records:
        index.put(record.cursor())
    index.commit()


def contents(folder: Path) -> list[bytes]:
    """The files, the oldest first."""
    return [path.read_bytes() for path in sorted(folder.iterdir())]
