"""A name server and a broker in one, for clients whose requests the real ones of this project do
not serve yet: half messages, replies.

It keeps what it is sent, answers as it is told, and asks back as the original does. What it does is
checked with the original in `tests/interop/test_client_*.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from orbitmq.common.clock import SystemClock
from orbitmq.message import hosts, message_id, properties
from orbitmq.message.record_write import MessageRecord, encode, record_size
from orbitmq.protocol.bodies.clients import HeartbeatData
from orbitmq.protocol.bodies.nameserver import BrokerData, ClusterInfo, QueueData, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from orbitmq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import RequestDispatcher
from orbitmq.remoting.lanes import LaneLimits
from orbitmq.remoting.server import RemotingServer, ServerConfig
from support.remoting.peers import address

BROKER_NAME = "broker-a"
CLUSTER = "cluster"
HOST = hosts.pack("127.0.0.1", 10911)


class Sent(NamedTuple):
    """A message that the broker was sent."""

    header: SendMessageRequestHeaderV2
    body: bytes
    offset: int

    @property
    def properties(self) -> dict[str, str]:
        return properties.parse(self.header.properties or "")


class End(NamedTuple):
    """What the broker was told of a transaction."""

    header: EndTransactionRequestHeader
    remark: str | None


class ScriptedBroker:
    """See above; `answer_code` is what it says to sends, None: nothing at all."""

    def __init__(self) -> None:
        self.address = ""
        self.answer_code: int | None = ResponseCode.SUCCESS
        self.heartbeat_code: int = ResponseCode.SUCCESS
        self.has_route = True
        self.topics_unknown: set[str] = set()
        self.sent: list[Sent] = []
        self.ends: list[End] = []
        self.groups: dict[str, Channel] = {}
        self.clients: dict[str, Channel] = {}
        self.heartbeats_at: list[int] = []  # how many messages it had then
        self.push_codes: list[int] = []  # what clients said to replies

    def dispatcher(self) -> RequestDispatcher:
        dispatcher = RequestDispatcher(SystemClock())
        dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self._route)
        dispatcher.register(RequestCode.GET_BROKER_CLUSTER_INFO, self._cluster_info)
        dispatcher.register(RequestCode.HEART_BEAT, self._heartbeat)
        dispatcher.register(
            RequestCode.UNREGISTER_CLIENT, lambda _, request: request.reply(ResponseCode.SUCCESS)
        )
        dispatcher.register(RequestCode.SEND_MESSAGE_V2, self._send)
        dispatcher.register(RequestCode.END_TRANSACTION, self._end)
        lane = dispatcher.add_lane(LaneLimits(name="replies", running_max=100, queue_max=100))
        dispatcher.register(RequestCode.SEND_REPLY_MESSAGE_V2, self._reply, lane=lane)
        return dispatcher

    # -- what clients ask

    def _route(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        topic = GetRouteInfoRequestHeader.from_fields(request.ext_fields).topic
        if not self.has_route or topic in self.topics_unknown:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST)
        brokers = [BrokerData(CLUSTER, BROKER_NAME, {0: self.address})]
        route = TopicRouteData(
            broker_datas=brokers, queue_datas=[QueueData(BROKER_NAME, 1, 1, 6, 0)]
        )
        return request.reply(ResponseCode.SUCCESS, body=route.encode(standard_keys=True))

    def _cluster_info(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        brokers = {BROKER_NAME: BrokerData(CLUSTER, BROKER_NAME, {0: self.address})}
        return request.reply(
            ResponseCode.SUCCESS, body=ClusterInfo(brokers, {CLUSTER: [BROKER_NAME]}).encode()
        )

    def _heartbeat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self.heartbeats_at.append(len(self.sent))
        if self.heartbeat_code == ResponseCode.SUCCESS:
            told = HeartbeatData.decode(request.body)
            self.clients[told.client_id] = channel
            self.groups.update(dict.fromkeys(told.producer_groups, channel))
        return request.reply(self.heartbeat_code)

    def _send(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self._keep(request)
        return (
            None
            if self.answer_code is None
            else request.reply(self.answer_code, "scripted", header=self._place())
        )

    def _keep(self, request: RemotingCommand) -> Sent:
        sent = Sent(
            SendMessageRequestHeaderV2.from_fields(request.ext_fields),
            request.body or b"",
            len(self.sent) * 1000,
        )
        self.sent.append(sent)
        return sent

    def _place(self) -> SendMessageResponseHeader:
        number = len(self.sent) - 1
        return SendMessageResponseHeader(
            msg_id=message_id.offset_id(HOST, number * 1000),
            queue_id=0,
            queue_offset=number,
            trace_on=True,
        )

    def _end(self, _: Channel, request: RemotingCommand) -> None:
        self.ends.append(
            End(EndTransactionRequestHeader.from_fields(request.ext_fields), request.remark)
        )

    # -- what it asks clients

    def check(self, half: Sent) -> None:
        """Ask a producer of the group how the transaction of a half message ended."""
        texts = half.properties
        message = MessageRecord(
            half.header.topic.encode(),
            half.body,
            born_host=HOST,
            born_time_ms=1,
            properties=properties.encode(texts),
            sys_flag=half.header.sys_flag,
        )
        record = bytearray(record_size(message, HOST))
        encode(message, record, 0, half.offset // 1000, half.offset, 2, HOST)
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.offset // 1000,
            commit_log_offset=half.offset,
            msg_id=texts[properties.UNIQUE_KEY],
            transaction_id="tx",
            target_broker=BROKER_NAME,
        )
        request = RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE, header, bytes(record)
        )
        self.groups[texts[properties.PRODUCER_GROUP]].invoke_oneway(request)

    async def _reply(self, _: Channel, request: RemotingCommand) -> RemotingCommand:
        sent = self._keep(request)
        asker = self.clients.get(sent.properties[properties.REPLY_TO_CLIENT])
        if asker is None or not asker.is_open:
            return request.reply(ResponseCode.SYSTEM_ERROR, "its sender is not here")
        header = ReplyMessageRequestHeader(
            producer_group=sent.header.producer_group,
            topic=sent.header.topic,
            default_topic=sent.header.default_topic,
            default_topic_queue_nums=sent.header.default_topic_queue_nums,
            queue_id=sent.header.queue_id,
            sys_flag=sent.header.sys_flag,
            born_timestamp=sent.header.born_timestamp,
            flag=sent.header.flag,
            born_host="127.0.0.1:4711",
            store_host="/127.0.0.1:10911",
            store_timestamp=sent.header.born_timestamp,
            properties=sent.header.properties,
        )
        push = RemotingCommand.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, header, sent.body)
        answer = await asker.invoke(push, 10_000)
        self.push_codes.append(answer.code)
        return request.reply(answer.code, answer.remark, header=self._place())


@asynccontextmanager
async def scripted_broker() -> AsyncIterator[ScriptedBroker]:
    """One on a free port, stopped at the end."""
    broker = ScriptedBroker()
    dispatcher = broker.dispatcher()
    server = RemotingServer(ServerConfig(), dispatcher, SystemClock())
    server.start()
    broker.address = address(server)
    try:
        yield broker
    finally:
        await dispatcher.close()
        await server.stop()
        await asyncio.sleep(0)
