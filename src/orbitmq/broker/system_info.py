"""What GET_BROKER_RUNTIME_INFO tells: the figures of the store, its disks and files, under the names and in the texts of the original.

Its queues are those of `water_marks`, told as queues of thread pools. What this broker has not (a pool of buffers) is told as the original
tells it while unused, so that tools find every name they look for. Changes nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from orbitmq.broker.water_marks import WaterMark
from orbitmq.common.clock import Clock
from orbitmq.protocol import fastjson
from orbitmq.protocol.versions import CURRENT_VERSION, describe
from orbitmq.store.message_store import MessageStore

_POOLS: Final = {"send": "send", "pull": "pull", "litePull": "lite_pull", "query": "query_message", "ack": "ack"}  # and their water marks
_NO_TIMER: Final = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}
_NO_BUFFER_POOL: Final = str((1 << 31) - 1)
_UNITS: Final = "KMGTPE"


class RuntimeSettings(Protocol):
    """What of the configuration is told."""

    @property
    def start_accept_send_request_time_stamp(self) -> int: ...

    def rows(self) -> list[tuple[str, str]]: ...


class RuntimeStats(Protocol):
    """What was counted, as entries of the answer."""

    def runtime_info(self, now_ms: int) -> Mapping[str, str]: ...


class RuntimeInfo:
    """Gathers the entries of the answer."""

    def __init__(
        self, settings: RuntimeSettings, store: MessageStore, stats: RuntimeStats, clock: Clock, mark_of: Callable[[str], WaterMark]
    ) -> None:
        self._settings = settings
        self._store = store
        self._stats = stats
        self._clock = clock
        self._mark_of = mark_of
        self.of_later: Callable[[], Mapping[str, str]] = dict  # what is told of messages that come later

    def entries(self) -> dict[str, str]:
        """Every name and its text."""
        return {
            **self._stats.runtime_info(self._clock.now_ms()),
            **self._disks(),
            **self._log(),
            **self._pools(),
            **_NO_TIMER,
            **self.of_later(),
            "brokerActive": "true",
            "brokerVersion": str(CURRENT_VERSION),  # of 4.9; 5.x has the text alone
            "brokerVersionDesc": describe(CURRENT_VERSION),
            "pageCacheLockTimeMills": "0",
            "remainTransientStoreBufferNumbs": _NO_BUFFER_POOL,
            "startAcceptSendRequestTimeStamp": str(self._settings.start_accept_send_request_time_stamp),
        }

    def _log(self) -> dict[str, str]:
        log = self._store.log
        return {
            "commitLogMinOffset": str(log.min_offset),
            "commitLogMaxOffset": str(log.end_offset),
            "dispatchBehindBytes": str(max(log.end_offset - self._store.dispatcher.offset, 0)),
            "earliestMessageTimeStamp": str(self._store.reads.first_time()),
            "remainHowManyDataToFlush": readable_size(max(log.end_offset - log.flushed_offset, 0)),
        }

    def _disks(self) -> dict[str, str]:
        config = self._store.config
        logs = {folder: _used_ratio(folder) for folder in config.log_folders()}
        entries = {f"commitLogDiskRatio_{folder}": _double(ratio) for folder, ratio in logs.items()}
        entries["commitLogDiskRatio"] = _double(min(logs.values()))
        entries["consumeQueueDiskRatio"] = _double(_used_ratio(config.root / "consumequeue"))
        try:
            disk = shutil.disk_usage(config.root)
            entries["commitLogDirCapacity"] = f"Total : {readable_size(disk.total)}, Free : {readable_size(disk.free)}."
        except OSError:
            pass  # the original leaves it out too
        return entries

    def _pools(self) -> dict[str, str]:
        """What waited in the last second, and how much the configuration lets wait."""
        rows = dict(self._settings.rows())
        entries = {
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": rows.get("endTransactionPoolQueueCapacity", "0"),
        }
        for pool, name in _POOLS.items():
            mark = self._mark_of(name)
            entries[f"{pool}ThreadPoolQueueSize"] = str(mark.size)
            entries[f"{pool}ThreadPoolQueueCapacity"] = rows.get(f"{pool}ThreadPoolQueueCapacity", "0")
            entries[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = str(mark.head_wait_ms)
        return entries


def readable_size(size: int) -> str:
    """The number of bytes as people read it: `222 B`, `1.5 GiB`."""
    if size < 1024:
        return f"{size} B"
    exponent = (size.bit_length() - 1) // 10
    return f"{size / 1024**exponent:.1f} {_UNITS[exponent - 1]}iB"


def _used_ratio(folder: Path) -> float:
    """Which part of the disk below a folder is used, in hundredths; -1 when there is no such folder."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return -1.0
    return -(-100 * disk.used // (disk.used + disk.free)) / 100  # rounded up, as df does


def _double(value: float) -> str:
    return fastjson.dumps(value).decode()
