"""The timer's check point: up to where its files are complete, so that a start can continue there.

First 56 bytes of `config/timercheck`, a file of 4096, big-endian; GET_TIMER_CHECK_POINT answers
with the same bytes:

| at | |
|---|---|
| 0 | slots before that time are done, ms |
| 8 | end of the timer log |
| 16 | next message of the timer topic's queue |
| 24 | the same, of the master that the time at 0 is of; on a master that of 16 |
| 32 | version: state, time, counter |

Crash rule: one write inside one sector, then a sync, so the file holds the old numbers or the new.
"""

from __future__ import annotations

import logging
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.store.file_layer import FileLayer

_FIELDS: Final = Struct(">7q")
_FILE_SIZE: Final = 4096

log = logging.getLogger(__name__)


class TimerCheck(NamedTuple):
    """The fields of the check point."""

    read_time_ms: int = 0
    log_end: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_time_ms: int = 0
    version_counter: int = 0

    def encode(self) -> bytes:
        return _FIELDS.pack(*self)

    @classmethod
    def decode(cls, content: bytes) -> TimerCheck:
        """Read the fields; raise ValueError if there are too few bytes, or a number below 0."""
        if len(content) < _FIELDS.size or min(_FIELDS.unpack_from(content)) < 0:
            raise ValueError(f"{content.hex()} is no check point of a timer")
        return cls._make(_FIELDS.unpack_from(content))


def load(layer: FileLayer, path: Path) -> TimerCheck | None:
    """Return the check point in the file; None if there is none, or it is invalid."""
    if path.name not in layer.list(path.parent):
        return None
    descriptor = layer.open(path)
    try:
        content = layer.pread(descriptor, _FIELDS.size, 0)
    finally:
        layer.close(descriptor)
    try:
        return TimerCheck.decode(content)
    except ValueError:
        log.error("timer_check_unusable file=%s content=%s", path, content.hex())
        return None


def write(layer: FileLayer, path: Path, check: TimerCheck) -> None:
    """Write the check point to the file, created if missing, and sync it. Blocks; runs in a
    worker.
    """
    if path.name not in layer.list(path.parent):
        layer.make_folder(path.parent)
        layer.close(layer.open(path, create=True))
        layer.sync_dir(path.parent)
    descriptor = layer.open(path)
    try:
        if layer.size(path) != _FILE_SIZE:
            layer.truncate(descriptor, _FILE_SIZE)
        layer.pwrite(descriptor, check.encode(), 0)
        layer.fdatasync(descriptor)
    finally:
        layer.close(descriptor)
