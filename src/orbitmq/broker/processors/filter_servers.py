"""Requests of filter servers. Their state lives in `FilterServers`."""

from __future__ import annotations

from orbitmq.broker.clients.filter_servers import FilterServers
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.common.clock import Clock
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.clients import (
    RegisterFilterServerRequestHeader,
    RegisterFilterServerResponseHeader,
)
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class FilterServerProcessor:
    """Serves REGISTER_FILTER_SERVER."""

    def __init__(self, settings: BrokerConfig, servers: FilterServers, clock: Clock) -> None:
        self._settings = settings
        self._servers = servers
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.REGISTER_FILTER_SERVER: self.register}

    def register(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Register a filter server until it falls silent; name servers learn of it with the next
        registration.
        """
        address = RegisterFilterServerRequestHeader.from_fields(
            request.ext_fields
        ).filter_server_addr
        self._servers.register(channel, address, self._clock.monotonic_ms())
        header = RegisterFilterServerResponseHeader(
            broker_name=self._settings.broker_name, broker_id=self._settings.broker_id
        )
        return request.reply(ResponseCode.SUCCESS, header=header)

    def on_close(self, channel: Channel) -> None:
        self._servers.on_close(channel)

    def scan(self) -> None:
        """Drop filter servers that fell silent, and close their connections."""
        for channel in self._servers.scan(self._clock.monotonic_ms()):
            channel.close("its filter server was silent for too long")
