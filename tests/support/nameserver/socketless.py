"""A name server's rooms put together without a socket: what their tests talk to."""

from __future__ import annotations

import asyncio
import inspect
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from orbitmq.common.errors import RequestRefusedError
from orbitmq.common.slices import Slices, finish
from orbitmq.nameserver.housekeeping import Housekeeping
from orbitmq.nameserver.kv_config import KvConfig
from orbitmq.nameserver.notices import MinBrokerIdNotices
from orbitmq.nameserver.processor import NameServerProcessor, RouteLookUp
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.protocol.bodies.nameserver import (
    DataVersion,
    TopicConfig,
    TopicQueueMappingInfo,
    TopicRouteData,
)
from orbitmq.protocol.bodies.registration import RegisterBrokerBody
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.testing.manual_clock import ManualClock


@dataclass
class Switches:
    """The switches of a fresh name server, to be changed by a test."""

    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    notify_min_broker_id_changed: bool = False
    delete_topic_with_broker_registration: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = 45


@dataclass
class Configuration:
    """Configuration text that remembers what it was told."""

    updates: list[str] = field(default_factory=list)

    def render(self) -> str:
        return "a=1\nb=2\n"

    def update(self, properties_text: str) -> None:
        if properties_text.startswith("kvConfigPath"):
            raise RequestRefusedError(16, "Can not update config in black list.")
        self.updates.append(properties_text)


class Connection:
    """A peer that notes why it was closed."""

    def __init__(self, remote_address: str = "10.0.0.9:40000") -> None:
        self.remote_address = remote_address
        self.closed_because: str | None = None
        self.is_open = True

    def close(self, reason: str) -> None:
        self.closed_because = reason


class NameServerRoom:
    """Everything of a name server but its sockets."""

    def __init__(self, folder: Path, look_up: RouteLookUp | None = None) -> None:
        self.clock = ManualClock()
        self.switches = Switches()
        self.configuration = Configuration()
        self.sent: list[tuple[str, dict[str, str] | None]] = []
        self.kv_config = KvConfig(folder / "namesrv" / "kvConfig.json")
        self.table = RouteTable()
        notices = MinBrokerIdNotices(
            self.switches, lambda address, request: self.sent.append((address, request.ext_fields))
        )
        self.processor = NameServerProcessor(
            table=self.table,
            kv_config=self.kv_config,
            notices=notices,
            switches=self.switches,
            configuration=self.configuration,
            updated=lambda: None,
            clock=self.clock,
            look_up=look_up,
        )
        self.housekeeping = Housekeeping(self.table, self.kv_config, notices, self.clock)
        self.connection = Connection()

    def serve(
        self, request: RemotingCommand, connection: Connection | None = None
    ) -> RemotingCommand:
        """The answer to a request; a refusal becomes one too."""
        handler: Any = self.processor.handlers()[RequestCode(request.code)]
        try:
            answer: Any = handler(connection or self.connection, request)
            if inspect.isawaitable(answer):
                answer = asyncio.run(_waited_for(answer))
            elif inspect.isgenerator(answer):
                answer = finish(cast("Slices[Any]", answer))
        except RequestRefusedError as refused:
            return request.reply(refused.code, refused.remark)
        assert isinstance(answer, RemotingCommand)
        return answer

    def ask(self, code: int, body: bytes | None = None, /, **fields: str) -> RemotingCommand:
        """The answer to a request with these ext fields."""
        return self.ask_as(CURRENT_VERSION, code, body, **fields)

    def ask_as(
        self, version: int, code: int, body: bytes | None = None, /, **fields: str
    ) -> RemotingCommand:
        """The answer to a request of a peer of that version."""
        return self.serve(
            RemotingCommand(code, ext_fields=fields or None, body=body, version=version)
        )

    def route(self, topic: str, **fields: str) -> TopicRouteData | None:
        """The route that a client of today gets."""
        answer = self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **fields)
        return None if answer.body is None else TopicRouteData.decode(answer.body)

    def perm(self, topic: str) -> int:
        """The permission of a topic that has queues on one broker."""
        route = self.route(topic)
        assert route is not None
        (queues,) = route.queue_datas
        return queues.perm

    def register(
        self,
        name: str = "broker-a",
        *,
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        cluster: str = "c1",
        topics: list[str] | list[TopicConfig] | None = None,
        counter: int = 1,
        state_version: int = 0,
        filter_servers: list[str] | None = None,
        mappings: dict[str, TopicQueueMappingInfo] | None = None,
        connection: Connection | None = None,
        version: int = CURRENT_VERSION,
        **fields: str,
    ) -> RemotingCommand:
        """Register a broker with these topics."""
        configs = [
            topic if isinstance(topic, TopicConfig) else TopicConfig(topic, 8, 8)
            for topic in topics or ["T1", "T2"]
        ]
        body = RegisterBrokerBody(
            DataVersion(counter, 1000, state_version),
            {config.name: config for config in configs},
            filter_servers or [],
            mappings or {},
        ).encode()
        header = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": cluster,
            "haServerAddr": f"ha of {address}",
            "brokerId": str(broker_id),
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        request = RemotingCommand(
            RequestCode.REGISTER_BROKER, ext_fields=header | fields, body=body, version=version
        )
        return self.serve(request, connection)

    def unregister(
        self,
        name: str = "broker-a",
        *,
        broker_id: int = 0,
        address: str = "10.0.0.1:10911",
        cluster: str = "c1",
    ) -> None:
        """Unregister a broker, which always succeeds."""
        fields = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": cluster,
            "brokerId": str(broker_id),
        }
        assert self.ask(RequestCode.UNREGISTER_BROKER, **fields).code == 0


async def _waited_for(answer: Any) -> Any:
    return await answer
