"""Resets of consumer offsets by operators, and the offsets that clients hold.

With useServerSideResetOffset the broker keeps the new offsets and passes them to a consumer with
its next pull; otherwise it sends them to the online consumers, which commit them. Invariant: a
request resets all of its queues, or none.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.clients.registry import Member
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.consume.offset_service import check_queue
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.processors.admin_replies import REMARK_LEFT
from orbitmq.common.errors import ProtocolError, RemoteError, RequestRefusedError
from orbitmq.common.slices import Slices, slices_of, to_be_finished
from orbitmq.protocol.bodies.admin_groups import (
    decode_client_offsets,
    encode_consumer_status,
    encode_reset_offsets_for_cpp,
    encode_reset_offsets_in_slices,
)
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import offsets as headers
from orbitmq.protocol.versions import V3_0_7_SNAPSHOT, describe
from orbitmq.remoting.channel import Channel, channel_of
from orbitmq.remoting.dispatch import Handler
from orbitmq.remoting.slices import finish_between
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import QueueKey, StoreTimeMs

log = logging.getLogger(__name__)

_CALL_TIMEOUT_MS: Final = 5_000
_ALL_QUEUES: Final = -1
_SEARCHES_PER_SLICE: Final = 20  # look-ups by time, each reads some records
_QUEUES_PER_SLICE: Final = 5_000
_CLIENTS_PER_SLICE: Final = 100
_SENT_BYTES_PER_SLICE: Final = 1024 * 1024
_NO_OFFSET: Final = -1


class ResetProcessor:
    """Serves offset resets, and the consumer status, which calls clients and needs a lane."""

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        consumers: Consumers,
        store: MessageStore,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._store = store

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self.reset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_status,
        }

    # -- resets

    @to_be_finished
    def reset(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Reset offsets: look them up in slices, then set them at once."""
        header = headers.ResetOffsetRequestHeader.from_fields(request.ext_fields)
        if self._settings.use_server_side_reset_offset:
            offsets = yield from self._reset_here(header)
            return request.reply(
                ResponseCode.SUCCESS, body=(yield from encode_reset_offsets_in_slices(offsets))
            )
        offsets = yield from self._reset_by_clients(
            header, for_cpp=request.language is LanguageCode.CPP
        )
        return request.reply(
            ResponseCode.SUCCESS,
            REMARK_LEFT,
            body=(yield from encode_reset_offsets_in_slices(offsets)),
        )

    def _reset_here(
        self, header: headers.ResetOffsetRequestHeader
    ) -> Slices[dict[MessageQueue, int]]:
        """Store the new offsets until the consumer of each queue pulls."""
        topic, group = header.topic, header.group
        config = self._topics.find(topic)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"Topic {topic} does not exist; check its name, or create it",
            )
        if group not in self._groups:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"Group {group} does not exist; check its name, or create it",
            )
        queue_id = _ALL_QUEUES if header.queue_id is None else header.queue_id
        check_queue(config, queue_id, self._store.queues)
        if queue_id < 0:
            offsets: dict[int, int] = {}
            for part in slices_of(range(config.read_queue_nums), _SEARCHES_PER_SLICE):
                offsets |= {each: self._offset_at(topic, each, header.timestamp) for each in part}
                if len(part) == _SEARCHES_PER_SLICE:
                    yield
        elif header.offset is not None and header.offset != _NO_OFFSET:
            offsets = {queue_id: self._checked(topic, queue_id, header.offset)}
        else:
            offsets = {queue_id: self._offset_at(topic, queue_id, header.timestamp)}
        if not offsets:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No queues to reset. {topic} has no queue to read from (readQueueNums)",
            )
        reset: dict[MessageQueue, int] = {}
        for number, each in enumerate(offsets, 1):
            reset[MessageQueue(topic, self._settings.broker_name, each)] = offsets[each]
            if number % _QUEUES_PER_SLICE == 0:
                yield
        yield from self._offsets.assign_resets_in_slices(group, topic, offsets)
        return reset

    def _reset_by_clients(
        self, header: headers.ResetOffsetRequestHeader, *, for_cpp: bool
    ) -> Slices[dict[MessageQueue, int]]:
        """Send the new offsets to every online consumer of the group."""
        topic, group = header.topic, header.group
        config = self._topics.find(topic)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        offsets = yield from self._offsets_for_clients(header, config)
        online = self._consumers.find(group)
        if online is None:
            raise RequestRefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
                f" Timestamp: {header.timestamp}",
            )
        members = list(online.members.values())
        _check_versions(members)
        forwarded = headers.ResetOffsetRequestHeader(
            topic=topic,
            group=group,
            timestamp=header.timestamp,
            is_force=False,
            queue_id=_ALL_QUEUES,
        )  # isForce is applied here
        body = yield from (
            encode_reset_offsets_for_cpp(offsets)
            if for_cpp
            else encode_reset_offsets_in_slices(offsets)
        )
        clients_at_once = max(_SENT_BYTES_PER_SLICE // len(body), 1)
        for number, part in enumerate(slices_of(members, min(clients_at_once, _CLIENTS_PER_SLICE))):
            if number:
                yield
            for member in part:
                try:
                    channel_of(member.channel).invoke_oneway(
                        RemotingCommand.request(
                            RequestCode.RESET_CONSUMER_CLIENT_OFFSET, forwarded, body
                        )
                    )
                except RemoteError as problem:
                    log.error(
                        "offset_reset_not_told group=%s topic=%s client=%s why=%s",
                        group,
                        topic,
                        member.info.client_id,
                        problem,
                    )
        return offsets

    def _offsets_for_clients(
        self, header: headers.ResetOffsetRequestHeader, config: TopicConfig
    ) -> Slices[dict[MessageQueue, int]]:
        """Return the new offset of each queue; without isForce a group never moves forward."""
        offsets: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            consumed = self._offsets.query(header.group, header.topic, queue_id)
            if consumed is None:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"THe consumer group <{header.group}> not exist: it never committed an offset"
                    f" of queue {queue_id} of {header.topic}",
                )
            wanted = self._offset_at(header.topic, queue_id, header.timestamp)
            queue = MessageQueue(header.topic, self._settings.broker_name, queue_id)
            offsets[queue] = wanted if header.is_force else min(wanted, consumed)
            if len(offsets) % _SEARCHES_PER_SLICE == 0:
                yield
        return offsets

    def _offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the offset at a time; the end of the queue if the time is negative."""
        if time_ms < 0:
            return self._store.queues.max_offset(topic, queue_id)
        return self._store.reads.offset_by_time(QueueKey(topic, queue_id), StoreTimeMs(time_ms))

    def _checked(self, topic: str, queue_id: int, offset: int) -> int:
        queues = self._store.queues
        low, high = queues.min_offset(topic, queue_id), queues.max_offset(topic, queue_id)
        if not low <= offset <= high + 1:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return offset

    # -- offsets of clients

    async def get_status(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Ask the members of a group, or the named one, for their offsets; leave out those that do
        not reply.
        """
        header = headers.GetConsumerStatusRequestHeader.from_fields(request.ext_fields)
        online = self._consumers.find(header.group)
        if online is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]; start one, or"
                " check the name",
            )
        members = list(online.members.values())
        _check_versions(members)
        if header.client_addr and not header.client_addr.isspace():
            named = online.member(header.client_addr)
            members = [] if named is None else [named]
        answers = await asyncio.gather(
            *(self._status_of(member, header.topic, header.group) for member in members)
        )
        statuses = {
            member.info.client_id: answer
            for member, answer in zip(members, answers, strict=True)
            if answer is not None
        }
        return request.reply(
            ResponseCode.SUCCESS,
            REMARK_LEFT,
            body=await finish_between(encode_consumer_status(statuses)),
        )

    async def _status_of(
        self, member: Member, topic: str, group: str
    ) -> dict[MessageQueue, int] | None:
        question = headers.GetConsumerStatusRequestHeader(topic=topic, group=group)
        try:
            answer = await channel_of(member.channel).invoke(
                RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, question),
                _CALL_TIMEOUT_MS,
            )
            return (
                decode_client_offsets(answer.body)
                if answer.code == ResponseCode.SUCCESS and answer.body
                else None
            )
        except (RemoteError, ProtocolError) as problem:
            log.error(
                "consumer_status_unknown group=%s topic=%s client=%s why=%s",
                group,
                topic,
                member.info.client_id,
                problem,
            )
            return None


def _check_versions(members: list[Member]) -> None:
    """Refuse the request if a member is too old for it."""
    for member in members:
        if member.info.version < V3_0_7_SNAPSHOT:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the client does not support this feature. version={describe(member.info.version)}"
                f" of {member.info.client_id}; upgrade it",
            )
