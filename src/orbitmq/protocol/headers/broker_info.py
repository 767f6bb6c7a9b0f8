"""Headers of the requests about a broker as a whole."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import Header, Int32, Int64, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    """Answer to 26."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader(Header):
    """315: one statistic over minute, hour and day."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCommitLogReadModeRequestHeader(Header):
    """2004: how the operating system reads the commit log: 0 ahead, 1 at random."""

    read_ahead_mode: Annotated[Int32 | None, Wire("READ_AHEAD_MODE")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRocksdbCqWriteProgressRequestHeader(Header):
    """354: compare the consume queues of both stores."""

    topic: str
    check_store_time: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRocksDBConfigToJsonRequestHeader(Header):
    """355: write the configuration kept in RocksDB as JSON files."""

    config_type: str
