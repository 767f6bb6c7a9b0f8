"""Headers of the requests about a broker as a whole."""

from dataclasses import dataclass
from typing import Annotated

from orbitmq.protocol.headers.base import Header, Int32, Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class GetBrokerConfigResponseHeader(Header):
    """Response header of GET_BROKER_CONFIG."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader(Header):
    """Request header of VIEW_BROKER_STATS_DATA: return one statistic per minute, hour and day."""

    stats_name: str
    stats_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCommitLogReadModeRequestHeader(Header):
    """Request header of SET_COMMITLOG_READ_MODE: set the commit log's read-ahead: 0 normal, 1
    random access.
    """

    read_ahead_mode: Annotated[Int32 | None, Wire("READ_AHEAD_MODE")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRocksDBConfigToJsonRequestHeader(Header):
    """Request header of EXPORT_ROCKSDB_CONFIG_TO_JSON: export the configuration in RocksDB to JSON
    files.
    """

    config_type: str
