"""A cluster with two brokers for tests of operators' work, and members of groups that do what a
test wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from orbitmq.admin import Admin
from orbitmq.client.messages import Message, SendResult
from orbitmq.client.producer.producer import Producer
from orbitmq.client.session.client_session import ClientSession, MemberHandler
from orbitmq.client.settings import ClientSettings
from orbitmq.protocol.bodies.clients import ConsumerData, MessageQueue
from orbitmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectOutcome, DirectResult
from orbitmq.protocol.bodies.subscriptions import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel

T = TypeVar("T")
WITHIN_S = 60.0


def administer(name_server: str, scenario: Callable[[Admin], Awaitable[T]]) -> T:
    """Run a scenario with an admin that has time."""

    async def main() -> T:
        async with (
            asyncio.timeout(WITHIN_S),
            Admin(ClientSettings(name_servers=name_server, timeout_ms=20_000)) as admin,
        ):
            return await scenario(admin)

    return asyncio.run(main())


async def send(
    admin: Admin, topic: str, *bodies: bytes, queue: MessageQueue | None = None, **said: str
) -> list[SendResult]:
    """Send messages one after the other; `said` are tags and keys."""
    async with Producer(admin.session) as producer:
        return [await producer.send(Message(topic, body, **said), queue=queue) for body in bodies]  # type: ignore[arg-type]


class Resident:
    """A member of a group that is online and reads nothing; what it tells of itself is `info`."""

    def __init__(self, group: str, topics: Sequence[str], info: ConsumerRunningInfo | None) -> None:
        self._group = group
        self._topics = topics
        self.info = info
        self.consumed: list[str] = []

    @property
    def producer_group(self) -> None:
        return None

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self._group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            tuple(SubscriptionData(topic, sub_version=1) for topic in self._topics),
        )

    def topics(self) -> Iterable[str]:
        return self._topics

    async def routes_changed(self) -> None: ...

    def serves(self) -> Mapping[int, MemberHandler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._tell,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume,
        }

    async def _tell(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        return (
            None
            if self.info is None
            else request.reply(ResponseCode.SUCCESS, body=self.info.encode())
        )

    async def _consume(self, _: Channel, request: RemotingCommand) -> RemotingCommand | None:
        self.consumed.append((request.ext_fields or {})["msgId"])
        return request.reply(
            ResponseCode.SUCCESS,
            body=DirectResult(outcome=DirectOutcome.CR_LATER, remark="not now").encode(),
        )


@asynccontextmanager
async def resident(
    name_server: str, group: str, *topics: str, info: ConsumerRunningInfo | None = None
) -> AsyncIterator[tuple[str, Resident]]:
    """A member that is online during the block, and its client id."""
    session = ClientSession(ClientSettings(name_servers=name_server))
    member = Resident(group, topics, info)
    try:
        for topic in topics:
            await session.route(topic)
        await session.join(member)
        await session.heartbeat()
        yield session.client_id, member
    finally:
        await session.close()
