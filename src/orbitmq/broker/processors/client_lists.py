"""Requests about clients: connected members of groups, and requests forwarded to a client.

Rules live in `Producers` and `Consumers`. Lists are written in slices, so a member that joins or
leaves meanwhile may or may not be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orbitmq.broker.clients.consumers import ConsumerGroup, Consumers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.registry import Member
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import Topics
from orbitmq.common.clock import Clock
from orbitmq.common.errors import (
    InvalidMessageError,
    RemoteError,
    RemoteTimeoutError,
    RequestRefusedError,
)
from orbitmq.common.slices import Slices
from orbitmq.message.message_id import parse_offset_id
from orbitmq.protocol.bodies import clients as bodies
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import clients as headers
from orbitmq.protocol.headers.base import Header
from orbitmq.protocol.signature import unsigned
from orbitmq.protocol.versions import V3_1_8_SNAPSHOT, describe
from orbitmq.remoting.channel import Channel, channel_of
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import LogOffset

CALL_TIMEOUT_MS: Final = 10_000  # of a request forwarded to a client
_NO_FIELDS: Final = Header()  # RocketMQ replies to some requests with an empty header


class ClientListProcessor:
    """Serves requests of clients and operators about clients. `record_at` is the store's;
    `conflicts` lists the subscription conflicts of a group.
    """

    def __init__(
        self,
        broker_name: str,
        *,
        producers: Producers,
        consumers: Consumers,
        groups: Groups,
        topics: Topics,
        record_at: Callable[[LogOffset], bytes | None],
        clock: Clock,
        conflicts: Callable[[ConsumerGroup], Sequence[str]],
        call_timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        self._broker_name = broker_name
        self._producers = producers
        self._consumers = consumers
        self._groups = groups
        self._topics = topics
        self._record_at = record_at
        self._clock = clock
        self._conflicts = conflicts
        self._call_timeout_ms = call_timeout_ms

    def handlers(self) -> Mapping[int, Handler]:
        """Map request codes to methods; coroutine functions call a client and need a lane."""
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # --- connected members

    def get_consumer_list(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        name = headers.GetConsumerListByGroupRequestHeader.from_fields(
            request.ext_fields
        ).consumer_group
        group = self._consumers.find(name)
        if group is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"no consumer for this group, {name}: none is online",
                header=_NO_FIELDS,
            )
        return request.reply(
            ResponseCode.SUCCESS,
            header=_NO_FIELDS,
            body=(yield from bodies.encode_consumer_ids(group.client_ids)),
        )

    def get_consumer_connections(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        name = headers.GetConsumerConnectionListRequestHeader.from_fields(
            request.ext_fields
        ).consumer_group
        group = self._consumers.find(name)
        if group is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{name}] not online: start a consumer of it, or check the name",
            )
        body = bodies.ConsumerConnection(
            connections=map(_connection, list(group.members.values())),
            subscriptions=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
            conflicts=tuple(self._conflicts(group)),
        )
        return request.reply(ResponseCode.SUCCESS, body=(yield from body.encode()))

    def get_producer_connections(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        name = headers.GetProducerConnectionListRequestHeader.from_fields(
            request.ext_fields
        ).producer_group
        members = self._producers.members(name)
        if not members:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group[{name}] not exist: no producer of it is online",
            )
        connections = map(_connection, list(members.values()))
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from bodies.encode_producer_connection(connections))
        )

    def get_all_producers(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """List all producers; a group that leaves meanwhile is listed without members."""
        producers = (
            (group, map(self._producer, list(self._producers.members(group).values())))
            for group in list(self._producers)
        )
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from bodies.encode_producer_table(producers))
        )

    def _producer(self, member: Member) -> bodies.ProducerInfo:
        return bodies.ProducerInfo(
            client_id=member.info.client_id,
            remote_ip=f"/{member.channel.remote_address}",
            language=member.info.language.name,
            version=member.info.version,
            last_update_timestamp=self._clock.now_ms()
            - self._clock.monotonic_ms()
            + member.heard_ms,
        )

    # --- requests to a client

    async def get_running_info(
        self, _channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = headers.GetConsumerRunningInfoRequestHeader.from_fields(request.ext_fields)
        return await self._call_consumer(
            request, header.consumer_group, header.client_id, request.ext_fields or {}, request.body
        )

    async def consume_directly(
        self, _channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = headers.ConsumeMessageDirectlyResultRequestHeader.from_fields(request.ext_fields)
        record = self._record_of(header.msg_id)
        topic = self._topics.find(header.topic) if header.topic else None
        group = self._groups.table.get(header.consumer_group)
        forwarded = replace(
            header,
            broker_name=self._broker_name,
            topic_sys_flag=header.topic_sys_flag if topic is None else topic.sys_flag,
            group_sys_flag=header.group_sys_flag if group is None else group.sys_flag,
        )
        fields = {**(request.ext_fields or {}), **forwarded.to_fields()}
        return await self._call_consumer(
            request, header.consumer_group, header.client_id, fields, record
        )

    def _record_of(self, message_id: str | None) -> bytes:
        """Return the stored bytes of the message that an operator wants consumed."""
        try:
            offset = parse_offset_id(message_id or "").log_offset
        except InvalidMessageError as problem:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"msgId must be the offset id of a message: {problem}"
            ) from problem
        record = self._record_at(LogOffset(offset))
        if record is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"no message with id {message_id} is stored here: it was deleted, or another broker"
                " has it; nothing was consumed",
            )
        return record

    async def _call_consumer(
        self,
        request: RemotingCommand,
        group: str,
        client_id: str | None,
        fields: dict[str, str],
        body: bytes | None,
    ) -> RemotingCommand:
        """Forward a request to a member of a group, without the sender's signature; return its
        reply.
        """
        found = self._consumers.find(group)
        member = None if found is None or client_id is None else found.member(client_id)
        if member is None:
            online = (
                "no member of the group is online"
                if found is None
                else f"members online: {', '.join(found.client_ids)}"
            )
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{group}> <{client_id}> not online; {online}",
            )
        if member.info.version < V3_1_8_SNAPSHOT:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{describe(member.info.version)}> too low to"
                " finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        timeout_ms = self._call_timeout_ms
        try:
            return await channel_of(member.channel).invoke(
                RemotingCommand(request.code, ext_fields=unsigned(fields), body=body), timeout_ms
            )
        except RemoteTimeoutError as problem:
            raise RequestRefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {problem}; it is connected from"
                f" {member.channel.remote_address} but busy or stuck, and may still act on the"
                " request: look at its log and its threads, then retry",
            ) from problem
        except RemoteError as problem:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {problem}; retry once the"
                " client is connected",
            ) from problem


def _connection(member: Member) -> bodies.ClientConnection:
    info = member.info
    return bodies.ClientConnection(
        info.client_id, member.channel.remote_address, info.language.name, info.version
    )
