"""Cluster-test mode: looks up an unknown topic in another environment, found through its address
server.
"""

from __future__ import annotations

import logging

from orbitmq.common.errors import RemoteError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.name_servers import address_server_url, look_up

log = logging.getLogger(__name__)


class OtherEnvironment:
    """The name servers of `productEnvName`."""

    def __init__(self, client: RemotingClient, config: NameServerConfig) -> None:
        self._client = client
        self._url = address_server_url(
            config.address_server, config.address_server_group, config.product_env_name
        )

    async def route(self, topic: str) -> bytes | None:
        """Return the encoded route of `topic` there; None if there is none, or no server can be
        reached.
        """
        try:
            self._client.name_servers.update(await look_up(self._url))
            request = RemotingCommand.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
            )
            reply = await self._client.invoke_name_server(request)
        except RemoteError as problem:
            log.warning(
                "other environment not asked topic=%s url=%s why=%s", topic, self._url, problem
            )
            return None
        return reply.body if reply.code == ResponseCode.SUCCESS else None
