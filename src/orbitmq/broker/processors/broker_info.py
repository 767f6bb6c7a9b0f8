"""Requests about the broker itself: configuration, runtime info, statistics, replication status,
and requests that only a RocksDB store serves.

An update of the configuration writes a small file on the loop thread: it is rare, and every later
request must see the new values. Invariant: a refused update changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.observability.runtime_info import RuntimeInfo
from orbitmq.broker.observability.stats import Stats
from orbitmq.broker.processors.admin_replies import REMARK_LEFT
from orbitmq.common import properties
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefusedError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.broker_info import ROCKSDB_CHECK_RUNS, encode_ha_status
from orbitmq.protocol.bodies.nameserver import DataVersion, encode_kv_table
from orbitmq.protocol.bodies.topics import next_version
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import broker_info as headers
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.message_store import MessageStore

_EXPORTS: Final = frozenset({"topics", "subscriptiongroups", "consumeroffsets"})
_CONFIGURATION_BYTES_MAX: Final = 128 * 1024
_READ_MODES: Final = {0: "true", 1: "false"}  # as madvise numbers them


class BrokerInfoProcessor:
    """Serves configuration, runtime info, statistics and HA status, and the requests for RocksDB
    stores.

    `updated` is called after each update of the configuration; `permission_changed` when the update
    changed brokerPermission, which the name servers must learn.
    """

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        info: RuntimeInfo,
        stats: Stats,
        store: MessageStore,
        clock: Clock,
        updated: Callable[[], object],
        permission_changed: Callable[[], object],
    ) -> None:
        self._settings = settings
        self._info = info
        self._stats = stats
        self._store = store
        self._clock = clock
        self._updated = updated
        self._permission_changed = permission_changed
        self._version = DataVersion(timestamp=clock.now_ms())

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_configuration,
            RequestCode.GET_BROKER_CONFIG: self.get_configuration,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
            RequestCode.GET_BROKER_HA_STATUS: self.get_ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.get_epochs,
            RequestCode.SET_COMMITLOG_READ_MODE: self.set_read_mode,
            RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: self.check_rocksdb,
            RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: self.export_configuration,
        }

    def update_configuration(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if request.body:
            if len(request.body) > _CONFIGURATION_BYTES_MAX:
                remark = (
                    f"the body has {len(request.body)} bytes; an update may have up to"
                    f" {_CONFIGURATION_BYTES_MAX}"
                )
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, remark)
            permission = self._settings.broker_permission
            self._update(properties.decode(request.body))
            if self._settings.broker_permission != permission:
                self._permission_changed()
        return request.reply(ResponseCode.SUCCESS)

    def set_read_mode(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Switch read-ahead of the commit log: an alias of dataReadAheadEnable."""
        try:
            mode = headers.SetCommitLogReadModeRequestHeader.from_fields(
                request.ext_fields
            ).read_ahead_mode
        except RequestRefusedError as problem:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"set commitlog readahead mode failed: {problem.remark}"
            ) from problem
        if mode is None:
            why = "param error" if request.ext_fields is None else "failed"
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"set commitlog readahead mode {why}: READ_AHEAD_MODE is missing; send 0 (read"
                " ahead) or 1 (read at random)",
            )
        if mode not in _READ_MODES:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"set commitlog readahead mode param value error: READ_AHEAD_MODE={mode}; send 0"
                " (read ahead) or 1 (read at random)",
            )
        self._update(f"dataReadAheadEnable={_READ_MODES[mode]}\n")
        return request.reply(
            ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}"
        )

    def _update(self, changes: str) -> None:
        self._settings.update(changes)
        self._version = next_version(self._version, self._clock.now_ms(), 0)
        self._updated()

    def get_configuration(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        version = fastjson.dumps(self._version.to_json()).decode()
        header = headers.GetBrokerConfigResponseHeader(version=version)
        return request.reply(
            ResponseCode.SUCCESS, header=header, body=self._settings.render().encode()
        )

    def get_runtime_info(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=encode_kv_table(self._info.entries()))

    def view_stats(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.ViewBrokerStatsDataRequestHeader.from_fields(request.ext_fields)
        found = self._stats.view(header.stats_name, header.stats_key)
        if found is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist: nothing was"
                " counted yet, or there is no such statistic",
            )
        return request.reply(ResponseCode.SUCCESS, body=found.encode())

    def get_ha_status(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.reply(
            ResponseCode.SUCCESS, body=encode_ha_status(self._store.log.end_offset)
        )

    def get_epochs(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            "this request only for controllerMode : there are no epochs without a controller",
        )

    # -- for RocksDB stores only

    def check_rocksdb(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Reply that the comparison with RocksDB queues has begun, as RocketMQ always does; there
        are no such queues here.
        """
        return request.reply(ResponseCode.SUCCESS, REMARK_LEFT, body=ROCKSDB_CHECK_RUNS)

    def export_configuration(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Export tables as JSON files: a no-op, they always are JSON files."""
        kinds = headers.ExportRocksDBConfigToJsonRequestHeader.from_fields(
            request.ext_fields
        ).config_type.split(";")
        unknown = [kind for kind in map(str.strip, kinds) if kind and kind.lower() not in _EXPORTS]
        if unknown:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"Unknown config type: {unknown[0]}; name some of topics, subscriptionGroups,"
                " consumerOffsets",
            )
        return request.reply(ResponseCode.SUCCESS, "export done.")
