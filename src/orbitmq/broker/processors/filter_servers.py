"""Requests of filter servers. What is known of them lives in `FilterServers`."""

from __future__ import annotations

from typing import Protocol

from orbitmq.broker.filter_servers import FilterServers
from orbitmq.common.clock import Clock
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.filter_servers import RegisterFilterServerRequestHeader, RegisterFilterServerResponseHeader
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class FilterServerSettings(Protocol):
    """What of the configuration a filter server is told."""

    @property
    def broker_name(self) -> str: ...
    @property
    def broker_id(self) -> int: ...


class FilterServerProcessor:
    """301."""

    def __init__(self, settings: FilterServerSettings, servers: FilterServers, clock: Clock) -> None:
        self._settings = settings
        self._servers = servers
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.REGISTER_FILTER_SERVER: self.register}

    def register(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Know a filter server from now on, until it falls silent; name servers hear of it with the next registration."""
        address = RegisterFilterServerRequestHeader.from_fields(request.ext_fields).filter_server_addr
        self._servers.register(channel, address, self._clock.monotonic_ms())
        told = RegisterFilterServerResponseHeader(broker_name=self._settings.broker_name, broker_id=self._settings.broker_id)
        return request.answer(ResponseCode.SUCCESS, header=told)

    def on_close(self, channel: Channel) -> None:
        self._servers.on_close(channel)

    def scan(self) -> None:
        """Take away those that fell silent."""
        for channel in self._servers.scan(self._clock.monotonic_ms()):
            channel.close("its filter server was silent for too long")
