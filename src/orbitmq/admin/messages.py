"""Messages: find them by id, key, position or time, follow a topic, and have a consumer process one
directly.

Reads outside of any group: no offset is stored, and no consumer misses a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.admin.calls import Calls
from orbitmq.admin.following import TOOLS_GROUP, Follower
from orbitmq.admin.groups import GroupOperations
from orbitmq.admin.offsets import OffsetOperations
from orbitmq.admin.positions import Position, QueueEdge
from orbitmq.admin.topics import TopicOperations
from orbitmq.client.consumer.pulling import pull, subscription
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.unwrapping import unwrap
from orbitmq.common.errors import InvalidMessageError, NotFoundError
from orbitmq.message import hosts
from orbitmq.message.message_id import parse_offset_id
from orbitmq.message.record import decode_each
from orbitmq.protocol.bodies.clients import MessageQueue
from orbitmq.protocol.bodies.running_info import DirectResult
from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.clients import ConsumeMessageDirectlyResultRequestHeader
from orbitmq.protocol.headers.query import QueryMessageRequestHeader, ViewMessageRequestHeader

_FOREVER_MS: Final = (1 << 63) - 1
_TOPICS_AT_ONCE: Final = 16


class FoundMessage(NamedTuple):
    """A message, the kind of id it was found by, and everything that was tried."""

    message: ReceivedMessage
    found_by: str
    looked: tuple[str, ...]


class TrackState(Enum):
    """What became of a message in a group."""

    CONSUMED = "consumed"
    FILTERED = "skipped: the group does not subscribe to its tags"
    NOT_YET = "not consumed yet"
    UNKNOWN = "the group has no offset in its queue"


class MessageTrack(NamedTuple):
    """What became of a message in a group that consumes its topic."""

    group: str
    is_online: bool
    state: TrackState


class MessageOperations:
    """Finds and tracks stored messages."""

    def __init__(
        self,
        calls: Calls,
        topics: TopicOperations,
        groups: GroupOperations,
        offsets: OffsetOperations,
    ) -> None:
        self._calls = calls
        self._topics = topics
        self._groups = groups
        self._offsets = offsets

    # -- by id and key

    async def by_offset_id(self, message_id: str) -> ReceivedMessage:
        """Return the message stored at the location that its offset id encodes."""
        place = parse_offset_id(message_id)
        address = hosts.text_of(place.store_host)
        brokers = (await self._calls.cluster_info()).brokers
        name = next(
            (name for name, data in brokers.items() if address in data.broker_addrs.values()), None
        )
        if name is None:
            known = (
                ", ".join(
                    sorted(each for data in brokers.values() for each in data.broker_addrs.values())
                )
                or "none"
            )
            raise NotFoundError(
                f"{message_id} names a message at {address}, where no broker is registered;"
                f" registered brokers: {known}"
            )
        header = ViewMessageRequestHeader(offset=place.log_offset)
        response = await self._calls.ask(
            address, RequestCode.VIEW_MESSAGE_BY_ID, header, accept=(ResponseCode.SYSTEM_ERROR,)
        )
        found = (
            _received(response.body or b"", name) if response.code == ResponseCode.SUCCESS else []
        )
        if not found:
            raise NotFoundError(
                f"{address} has no message at offset {place.log_offset} of its commit log:"
                f" {response.remark}"
            )
        return found[0]

    async def by_unique_key(self, topic: str, key: str) -> list[ReceivedMessage]:
        """Return the messages of a topic with a producer's id: several if it was sent again."""
        return [
            message
            for message in await self._query(topic, key, 0, _FOREVER_MS, 32, unique=True)
            if message.msg_id == key
        ]

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _FOREVER_MS,
        count_max: int = 64,
    ) -> list[ReceivedMessage]:
        """Return the messages of a topic with a key that were stored in a period, at most
        `count_max` per broker.
        """
        found = await self._query(topic, key, begin_ms, end_ms, count_max, unique=False)
        return [message for message in found if key in message.keys]

    async def _query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count_max: int, *, unique: bool
    ) -> list[ReceivedMessage]:
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            max_num=count_max,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            unique_key_query=unique or None,
        )
        missing = (ResponseCode.QUERY_NOT_FOUND,)
        answers = await self._calls.gather(
            await self._topics.readers(topic),
            lambda address: self._calls.ask(
                address, RequestCode.QUERY_MESSAGE, header, accept=missing
            ),
        )
        found = [
            message
            for name, answer in answers.found.items()
            for message in _received(answer.body or b"", name)
        ]
        return sorted(
            (message for message in found if message.stored.topic == topic), key=_stored_at
        )

    async def get(self, message_id: str, topic: str | None = None) -> FoundMessage:
        """Return the message with an id of any kind (offset id, producer's id, or key), in one
        topic or all.

        NotFoundError says where it was searched.
        """
        looked: list[str] = []
        try:
            looked.append("by offset id")
            return FoundMessage(await self.by_offset_id(message_id), "place", tuple(looked))
        except InvalidMessageError:
            looked[-1] += ": it is not an offset id"
        except NotFoundError as missing:
            looked[-1] += f": {missing}"
        topics = [topic] if topic else await self._topics.names()
        where = f"topic {topic}" if topic else f"all {len(topics)} topics"
        for kind, search in (("unique id", self.by_unique_key), ("key", self.by_key)):
            looked.append(f"by {kind} in {where}")
            found = await self._first(topics, message_id, search)
            if found is not None:
                return FoundMessage(found, kind, tuple(looked))
        raise NotFoundError(f"no message {message_id} was found; searched {'; '.join(looked)}")

    async def _first(
        self,
        topics: Iterable[str],
        key: str,
        search: Callable[[str, str], Awaitable[list[ReceivedMessage]]],
    ) -> ReceivedMessage | None:
        """Return the earliest message that a search finds in any of the topics."""
        limit = asyncio.Semaphore(_TOPICS_AT_ONCE)

        async def look(topic: str) -> list[ReceivedMessage]:
            async with limit:
                try:
                    return await search(topic, key)
                except NotFoundError:
                    return []  # deleted meanwhile

        found = [
            message for messages in await asyncio.gather(*map(look, topics)) for message in messages
        ]
        return min(found, key=_stored_at, default=None)

    # -- by position and time

    async def view(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """Return the message at an offset of a queue."""
        found = await pull(
            self._calls.session,
            TOOLS_GROUP,
            queue,
            offset,
            subscription(queue.topic, SUBSCRIBE_ALL),
            count_max=1,
        )
        message = next((each for each in found.messages if each.queue_offset == offset), None)
        if message is None:
            place = f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
            raise NotFoundError(
                f"{place} has no message at offset {offset}; its offsets range from"
                f" {found.min_offset} to below {found.max_offset}"
            )
        return message

    async def between(
        self,
        topic: str,
        begin_ms: int,
        end_ms: int,
        expression: str = SUBSCRIBE_ALL,
        kind: str = TAG,
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield the messages of a topic stored from `begin_ms` to `end_ms` inclusive, by store
        time.
        """
        wanted = subscription(topic, expression, kind)
        readers = [
            self.by_time(queue, begin_ms, end_ms, wanted)
            for queue in await self._offsets.queues(topic)
        ]
        heads = [(await anext(reader, None), reader) for reader in readers]
        pending = [(message, reader) for message, reader in heads if message is not None]
        while pending:
            first = min(range(len(pending)), key=lambda at: _stored_at(pending[at][0]))
            message, reader = pending[first]
            yield message
            following = await anext(reader, None)
            if following is None:
                del pending[first]
            else:
                pending[first] = (following, reader)

    async def by_time(
        self,
        queue: MessageQueue,
        begin_ms: int,
        end_ms: int,
        wanted: SubscriptionData | None = None,
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield the present messages of a queue that were stored in a period, in order."""
        wanted = wanted or subscription(queue.topic, SUBSCRIBE_ALL)
        # Brokers of 4.9 find any message of the same millisecond: search one earlier.
        offset = (
            await self._offsets.at_time(queue, begin_ms - 1)
            if begin_ms > 0
            else await self._offsets.first(queue)
        )
        end = await self._offsets.end(queue)
        while offset < end:
            found = await pull(self._calls.session, TOOLS_GROUP, queue, offset, wanted)
            for message in found.messages:
                if message.stored_at_ms > end_ms:
                    return
                if message.stored_at_ms >= begin_ms:
                    yield message
            if found.next_offset <= offset:
                return
            offset = found.next_offset

    @asynccontextmanager
    async def follow(
        self,
        topic: str,
        begin: Position = QueueEdge.LAST,
        expression: str = SUBSCRIBE_ALL,
        kind: str = TAG,
    ) -> AsyncIterator[Follower]:
        """Follow a topic from a position on; the start offsets are fixed when the block begins."""
        follower = Follower(
            self._calls.session, self._offsets, subscription(topic, expression, kind)
        )
        try:
            await follower.start(begin)
            yield follower
        finally:
            await follower.close()

    # -- consumers

    async def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> DirectResult:
        """Have one group member consume one message now, whatever became of it before."""
        header = ConsumeMessageDirectlyResultRequestHeader(
            consumer_group=group,
            client_id=client_id,
            msg_id=message.offset_msg_id,
            topic=message.stored.topic,
        )
        address = await self._calls.session.broker_of(message.queue)
        return DirectResult.decode(
            (await self._calls.ask(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)).body
            or b"{}"
        )

    async def track(self, message: ReceivedMessage) -> list[MessageTrack]:
        """Return what became of a message in each group that consumes its topic."""
        groups = await self._topics.groups(message.queue.topic)
        return list(await asyncio.gather(*(self._track(group, message) for group in groups)))

    async def _track(self, group: str, message: ReceivedMessage) -> MessageTrack:
        connections = await self._groups.connections(group)
        offset = await self._offsets.committed(group, message.queue)
        wanted = connections.subscriptions.get(message.queue.topic)
        if offset is None:
            state = TrackState.UNKNOWN
        elif offset <= message.queue_offset:
            state = TrackState.NOT_YET
        else:
            state = (
                TrackState.CONSUMED
                if wanted is None or _wants(wanted, message)
                else TrackState.FILTERED
            )
        return MessageTrack(group, bool(connections.members), state)


def _wants(wanted: SubscriptionData, message: ReceivedMessage) -> bool:
    return not is_tag_type(wanted.expression_type) or not wanted.tags or message.tags in wanted.tags


def _received(body: bytes, broker_name: str) -> list[ReceivedMessage]:
    """Return the messages of a reply, including those inside of batches."""
    return [
        message
        for record, flaw in decode_each(body)
        for message in unwrap(record, broker_name, flaw)
    ]


def _stored_at(message: ReceivedMessage) -> tuple[int, int]:
    return message.stored_at_ms, message.stored.log_offset
