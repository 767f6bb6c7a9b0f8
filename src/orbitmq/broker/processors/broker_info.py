"""The broker as a whole: its configuration, what it does now, what it counted, and how replication stands.

An update of the configuration writes a small file within the turn: an operator's rare act, after which every request has to see the new
values. Invariant: an update that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orbitmq.broker.stats import Stats
from orbitmq.broker.system_info import RuntimeInfo
from orbitmq.common import properties
from orbitmq.common.clock import Clock
from orbitmq.common.errors import RequestRefused
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.broker_info import encode_ha_status
from orbitmq.protocol.bodies.nameserver import DataVersion, encode_kv_table
from orbitmq.protocol.bodies.topics import next_version
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import broker_info as headers
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.message_store import MessageStore


class BrokerInfoSettings(Protocol):
    """The whole configuration as operators read and change it."""

    @property
    def broker_permission(self) -> int: ...

    def render(self) -> str: ...

    def update(self, properties_text: str) -> None: ...


class BrokerInfoProcessor:
    """25, 26, 28, 315 and 907.

    `updated` is called after each update of the configuration; `permission_changed` when that changed what the broker may do, which name
    servers have to hear.
    """

    def __init__(
        self,
        settings: BrokerInfoSettings,
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
        }

    def update_configuration(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        if request.body:
            permission = self._settings.broker_permission
            self._settings.update(properties.decode(request.body))
            self._version = next_version(self._version, self._clock.now_ms(), 0)
            self._updated()
            if self._settings.broker_permission != permission:
                self._permission_changed()
        return request.answer(ResponseCode.SUCCESS)

    def get_configuration(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        version = fastjson.dumps(self._version.to_json()).decode()
        header = headers.GetBrokerConfigResponseHeader(version=version)
        return request.answer(ResponseCode.SUCCESS, header=header, body=self._settings.render().encode())

    def get_runtime_info(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=encode_kv_table(self._info.entries()))

    def view_stats(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.ViewBrokerStatsDataRequestHeader.from_fields(request.ext_fields)
        found = self._stats.view(header.stats_name, header.stats_key)
        if found is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return request.answer(ResponseCode.SUCCESS, body=found.encode())

    def get_ha_status(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=encode_ha_status(self._store.log.end_offset))
