"""The entries of GET_BROKER_RUNTIME_INFO: statistics of the store, its disks and files, with the
names and number formats of Apache RocketMQ.

The sizes of thread pool queues are those of `watermarks`. Features that this broker lacks, such as
the buffer pool, have the value that Apache RocketMQ reports while they are unused, so that tools
find every name. Read-only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.observability.store_stats import java_double
from orbitmq.broker.observability.watermarks import WaterMark
from orbitmq.common.clock import Clock
from orbitmq.protocol.versions import CURRENT_VERSION, describe
from orbitmq.store.message_store import MessageStore

# From the thread pool of Apache RocketMQ to the name of its water mark.
_POOLS: Final = {
    "send": "send",
    "pull": "pull",
    "litePull": "lite_pull",
    "query": "query_message",
    "ack": "ack",
}
_NO_TIMER: Final = {
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
}
_NO_BUFFER_POOL: Final = str((1 << 31) - 1)
_UNITS: Final = "KMGTPE"


class RuntimeStats(Protocol):
    """Statistics that the reply contains."""

    def runtime_info(self, now_ms: int) -> Mapping[str, str]: ...


class RuntimeInfo:
    """Collects the entries of the reply."""

    def __init__(
        self,
        settings: BrokerConfig,
        store: MessageStore,
        stats: RuntimeStats,
        clock: Clock,
        mark_of: Callable[[str], WaterMark],
        of_delay: Callable[[], Mapping[str, str]],
    ) -> None:
        self._settings = settings
        self._store = store
        self._stats = stats
        self._clock = clock
        self._mark_of = mark_of
        self._of_delay = of_delay  # the entries of scheduled delivery

    def entries(self) -> dict[str, str]:
        """Return all entries of the reply."""
        return {
            **self._stats.runtime_info(self._clock.now_ms()),
            **self._disks(),
            **self._log(),
            **self._pools(),
            **_NO_TIMER,
            **self._of_delay(),
            "brokerActive": "true",
            "brokerVersion": str(CURRENT_VERSION),  # for tools of 4.9; 5.x has only the text
            "brokerVersionDesc": describe(CURRENT_VERSION),
            "pageCacheLockTimeMills": "0",
            "remainTransientStoreBufferNumbs": _NO_BUFFER_POOL,
            "startAcceptSendRequestTimeStamp": str(
                self._settings.start_accept_send_request_time_stamp
            ),
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
        entries = {
            f"commitLogDiskRatio_{folder}": java_double(ratio) for folder, ratio in logs.items()
        }
        entries["commitLogDiskRatio"] = java_double(min(logs.values()))
        entries["consumeQueueDiskRatio"] = java_double(_used_ratio(config.root / "consumequeue"))
        try:
            disk = shutil.disk_usage(config.root)
            entries["commitLogDirCapacity"] = (
                f"Total : {readable_size(disk.total)}, Free : {readable_size(disk.free)}."
            )
        except OSError:
            pass  # Apache RocketMQ omits the entry too
        return entries

    def _pools(self) -> dict[str, str]:
        """Return the queue lengths of the last second, and the configured limits."""
        rows = dict(self._settings.rows())
        entries = {
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": rows.get(
                "endTransactionPoolQueueCapacity", "0"
            ),
        }
        for pool, name in _POOLS.items():
            mark = self._mark_of(name)
            entries[f"{pool}ThreadPoolQueueSize"] = str(mark.size)
            entries[f"{pool}ThreadPoolQueueCapacity"] = rows.get(
                f"{pool}ThreadPoolQueueCapacity", "0"
            )
            entries[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = str(mark.head_wait_ms)
        return entries


def readable_size(size: int) -> str:
    """Format a number of bytes: `222 B`, `1.5 GiB`."""
    if size < 1024:
        return f"{size} B"
    exponent = (size.bit_length() - 1) // 10
    return f"{size / 1024**exponent:.1f} {_UNITS[exponent - 1]}iB"


def _used_ratio(folder: Path) -> float:
    """Return the used fraction of a folder's disk, to hundredths; -1 without a folder."""
    try:
        disk = shutil.disk_usage(folder)
    except OSError:
        return -1.0
    return -(-100 * disk.used // (disk.used + disk.free)) / 100  # rounded up, as df does
