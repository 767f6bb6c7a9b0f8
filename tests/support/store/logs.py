"""What the tests of the commit log share: small logs, messages, and the golden logs as
directories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from orbitmq.message import hosts
from orbitmq.message.record import RecordLimits
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.log_batch import Appended
from orbitmq.store.log_scan import LogScan
from orbitmq.store.queue_offsets import QueueOffsets
from orbitmq.store.types import LogOffset, StoreTimeMs
from support.common.golden_data import files
from support.common.process_files import ProcessFiles

HOST = hosts.pack("192.0.2.1", 10911)
NOW_MS = 1_700_000_000_000
FILE_SIZE = 4096
LIMITS = RecordLimits(body_size_max=FILE_SIZE, around_body_size_max=FILE_SIZE)


def message(body: bytes = b"hello", topic: bytes = b"Topic", **fields: Any) -> MessageRecord:
    return MessageRecord(topic, body, born_host=HOST, born_time_ms=NOW_MS - 1, **fields)


def new_log(folder: Path, layer: FileLayer | None = None, **settings: Any) -> CommitLog:
    """A log below `folder`, of files of 4 KiB unless told otherwise, not loaded."""
    config = replace(
        StoreConfig(root=folder, commit_log_file_size=FILE_SIZE, limits=LIMITS), **settings
    )
    return CommitLog(layer or ProcessFiles(), config, HOST, QueueOffsets())


def loaded_log(folder: Path, layer: FileLayer | None = None, **settings: Any) -> CommitLog:
    """The log that is there, continued where its good records end."""
    log = new_log(folder, layer, **settings)
    log.load()
    found, store_time = contents(log, log.min_offset)
    log.resume(LogOffset(found.offset), StoreTimeMs(store_time))
    return log


def place_of(appended: Appended) -> tuple[int, int, int, int]:
    """Offset, size, queue offset and store time, to compare."""
    return appended.offset, appended.size, appended.queue_offset, appended.store_time_ms


def contents(log: CommitLog, begin: int = 0, *, check_record: bool = False) -> tuple[LogScan, int]:
    """A scan that went through the log, and the store time of its last record."""
    scan, store_time = log.scan(LogOffset(begin), check_record=check_record), 0
    for record in scan:
        store_time = record.store_time_ms
    return scan, store_time


def bodies(log: CommitLog) -> list[bytes]:
    """The bodies of all records, oldest first; an error when the committed log has a flaw."""
    scan = log.scan(log.min_offset)
    found = [record.body() for record in scan]
    assert scan.problem is None
    return found


@cache
def golden_logs() -> Mapping[str, Mapping[str, bytes]]:
    """The files of every commit log that real brokers wrote, by the directory they lay in."""
    logs: dict[str, dict[str, bytes]] = defaultdict(dict)
    for archive in ("store-4.9.8", "store-5.5.0", "ha-4.9.8"):
        for path, content in files(archive).items():
            folder, _, name = path.rpartition("/")
            if folder.endswith("/commitlog") or "-commitlog" in folder:
                logs[folder.removesuffix("/commitlog")][name] = content
    return dict(sorted(logs.items()))
